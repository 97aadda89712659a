//! JSON Schemas of objects that the macro [`object`](crate::base::object::object) cannot print:
//! rows of `run.json`, and objects whose members depend on their values.

use serde_json::{Value, json};
use tprof_trace::run::{BlindSpot, LossInfo, OverheadPart};

use super::job_overhead::Overhead;
use super::processes::ProcessRow;
use crate::base::has_schema::{HasSchema, ObjectSchema, plain_field, reading_field};

macro_rules! rows {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl HasSchema for $type {
            fn schema() -> Value {
                let object = ObjectSchema::default();
                $( let object = object.plain(
                    stringify!($field),
                    plain_field(|of: &$type| &of.$field),
                ); )*
                object.finish()
            }
        }
    )*};
}
rows! {
    LossInfo { what, why, count }
    BlindSpot { process, what, why, as_asked }
    OverheadPart { part, count, ns_low, ns_high }
}

impl HasSchema for Overhead {
    fn schema() -> Value {
        let object = ObjectSchema::default();
        macro_rules! bounded {
            ($object:ident, $($field:ident)*) => {$(
                let value = || reading_field(|of: &Overhead| &of.$field.value);
                let $object = $object
                    .reading(stringify!($field), value())
                    .reading(concat!(stringify!($field), "_low"), value())
                    .reading(concat!(stringify!($field), "_high"), value());
            )*};
        }
        bounded!(object, host_ns wait_ns fraction fraction_of_wall);
        let object = object
            .reading("job_wall_ns", reading_field(|of: &Overhead| &of.job_wall_ns))
            .reading("job_cpu_ns", reading_field(|of: &Overhead| &of.job_cpu_ns));
        bounded!(object, collector_cpu_ns);
        let object = object.plain("parts", plain_field(|of: &Overhead| &of.parts));
        let object = object.reading("step", reading_field(|of: &Overhead| &of.step));
        object.plain("estimate", json!({ "const": true })).finish()
    }
}

impl HasSchema for ProcessRow {
    fn schema() -> Value {
        // A row has either `exit_status`, which is null beside its reason if there is no status, or
        // `signal`.
        ObjectSchema::default()
            .plain("host", plain_field(|of: &ProcessRow| &of.host))
            .plain("pid", plain_field(|of: &ProcessRow| &of.pid))
            .plain("parent", plain_field(|of: &ProcessRow| &of.parent))
            .plain("rank", plain_field(|of: &ProcessRow| &of.rank))
            .plain("command", plain_field(|of: &ProcessRow| &of.command))
            .some("exit_status", Option::<i32>::schema())
            .some("exit_status_missing", String::schema())
            .some("signal", i32::schema())
            .plain("start_ns", plain_field(|of: &ProcessRow| &of.start_ns))
            .reading("end_ns", reading_field(|of: &ProcessRow| &of.end_ns))
            .plain("file", plain_field(|of: &ProcessRow| &of.file))
            .reading("lost", reading_field(|of: &ProcessRow| &of.lost))
            .plain("own", plain_field(|of: &ProcessRow| &of.own))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the members of the printed object, and those of its schema.
    fn members<T: HasSchema + serde::Serialize + Default>() -> [Vec<String>; 2] {
        let keys = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let printed = serde_json::to_value(T::default()).unwrap();
        let mut both = [keys(&printed), keys(&T::schema()["properties"])];
        both.iter_mut().for_each(|keys| keys.sort());
        both
    }

    #[test]
    fn schemas_have_the_members_that_are_printed() {
        for [printed, schema] in
            [members::<LossInfo>(), members::<BlindSpot>(), members::<OverheadPart>()]
        {
            assert_eq!(printed, schema);
        }
    }
}
