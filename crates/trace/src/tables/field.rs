//! Stores each field of the large tables as a column.
//!
//! [`columns_of!`] implements [`Row`](super::Row) from a list of fields and their column ids.
//! `plain` fields are numbers that repeat. `steady` fields are numbers that rise slowly from row to
//! row, so they are stored as differences.

use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::NameId;

/// The type of a field, which determines how its column is written and read.
pub(super) trait Field: Copy {
    /// Writes the field of every row as a column. A `steady` field is stored as differences if its
    /// type allows that.
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        steady: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    );
    /// Reads a column with one value per row.
    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage>;
}

/// Writes a column of `u64`s.
fn integers<R>(
    block: &mut BlockWriter<'_>,
    id: u16,
    steady: bool,
    rows: &[R],
    of: impl Fn(&R) -> u64,
) {
    match steady {
        true => block.time(id, rows, of),
        false => block.uint(id, rows, of),
    }
}

impl Field for u64 {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        steady: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        integers(block, id, steady, rows, of);
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        columns.uint(id)
    }
}

impl Field for u32 {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        _: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        block.uint(id, rows, |row| of(row).into());
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        columns.narrow(id)
    }
}

impl Field for NameId {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        _: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        block.uint(id, rows, |row| of(row).0.into());
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        Ok(columns.narrow(id)?.into_iter().map(NameId).collect())
    }
}

impl Field for bool {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        _: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        block.flag(id, rows, of);
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        columns.flag(id)
    }
}

impl Field for Option<u64> {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        steady: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        match steady {
            true => block.option_time(id, rows, of),
            false => block.option(id, rows, of),
        }
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        columns.option_or_none(id)
    }
}

impl Field for Option<u32> {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        _: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        block.option(id, rows, |row| of(row).map(u64::from));
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        Ok(columns.option_or_none(id)?.into_iter().map(super::narrow).collect())
    }
}

impl Field for Option<NameId> {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        _: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        block.option(id, rows, |row| of(row).map(|name| name.0.into()));
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        let numbers = columns.option_or_none(id)?.into_iter();
        Ok(numbers.map(|number| super::narrow(number).map(NameId)).collect())
    }
}

impl Field for Option<bool> {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        _: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        block.option(id, rows, |row| of(row).map(u64::from));
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        let values = columns.option_or_none(id)?;
        Ok(values.into_iter().map(|value| value.map(|value| value != 0)).collect())
    }
}

/// Stored as three columns with consecutive ids.
impl Field for [u32; 3] {
    fn write<R>(
        block: &mut BlockWriter<'_>,
        id: u16,
        _: bool,
        rows: &[R],
        of: impl Fn(&R) -> Self,
    ) {
        for axis in 0..3 {
            block.uint(id + axis, rows, |row| of(row)[usize::from(axis)].into());
        }
    }

    fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
        let (x, y, z) = (columns.narrow(id)?, columns.narrow(id + 1)?, columns.narrow(id + 2)?);
        Ok(x.into_iter().zip(y).zip(z).map(|((x, y), z)| [x, y, z]).collect())
    }
}

/// Implements [`Field`] for an enum without data, which is stored as the number of its variant. A
/// number that a later format adds is read as `$unknown`.
macro_rules! numbered {
    ($type:ident, else $unknown:ident: $($variant:ident),* $(,)?) => {
        impl $crate::tables::field::Field for $type {
            fn write<R>(
                block: &mut BlockWriter<'_>,
                id: u16,
                _: bool,
                rows: &[R],
                of: impl Fn(&R) -> Self,
            ) {
                block.uint(id, rows, |row| of(row) as u64);
            }

            fn read(columns: &mut Columns<'_>, id: u16) -> Result<Vec<Self>, Damage> {
                let one = |number: u64| match number {
                    $( n if n == $type::$variant as u64 => $type::$variant, )*
                    _ => $type::$unknown,
                };
                Ok(columns.uint(id)?.into_iter().map(one).collect())
            }
        }
    };
}
pub(super) use numbered;

/// Implements [`Row`](super::Row) from a list of columns.
macro_rules! columns_of {
    ($row:ident in $table:ident $(, from $start:ident $(for $duration:ident)?)?;
     $($id:literal $how:ident $field:ident),* $(,)?) => {
        impl $crate::tables::Row for $row {
            const TABLE: u16 = $crate::tables::table::$table;

            $(fn time_ns(&self) -> u64 {
                self.$start
            }

            $(fn end_ns(&self) -> u64 {
                self.$start.saturating_add(self.$duration)
            })?)?

            fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
                $( $crate::tables::field::Field::write(
                    block,
                    $id,
                    $crate::tables::field::columns_of!(@ $how),
                    rows,
                    |row: &Self| row.$field,
                ); )*
            }

            fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
                $( let $field = $crate::tables::field::Field::read(columns, $id)?; )*
                Ok($crate::tables::rows(columns, |at| $row { $( $field: $field[at], )* }))
            }
        }
    };
    (@ plain) => { false };
    (@ steady) => { true };
}
pub(super) use columns_of;

/// Implements [`Part`](super::Part) for a selection of a row's columns.
macro_rules! part_of {
    ($part:ident of $table:ident $(, from $time:ident)?; $($id:literal $field:ident),* $(,)?) => {
        impl $crate::tables::Part for $part {
            const TABLE: u16 = $crate::tables::table::$table;

            fn began_ns(&self) -> Option<u64> {
                let times: &[u64] = &[$( self.$time )?];
                times.first().copied()
            }

            fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
                $( let $field = $crate::tables::field::Field::read(columns, $id)?; )*
                Ok($crate::tables::rows(columns, |at| $part { $( $field: $field[at], )* }))
            }
        }
    };
}
pub(super) use part_of;
