//! What a report page holds.

/// The content of a report.
#[derive(Clone, Debug, Default)]
pub struct ReportPage {
    /// Below the title: where, when.
    pub about: String,
    /// The figures that come first.
    pub facts: Vec<Fact>,
    /// Whether everything was recorded, in a sentence, and what was not.
    pub complete: Completeness,
    /// Its parts.
    pub sections: Vec<Section>,
    /// Other pages of the run: what they are, and where, relative to this one.
    pub links: Vec<(String, String)>,
}

/// A figure with its name.
#[derive(Clone, Debug, Default)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// As a person reads it.
    pub value: String,
    /// More on it, or why it is not known.
    pub remark: String,
}

/// What was recorded and what was not.
#[derive(Clone, Debug, Default)]
pub struct Completeness {
    /// Nothing was lost, every process was recorded.
    pub whole: bool,
    /// That in a sentence.
    pub sentence: String,
    /// What is missing, in sentences.
    pub gaps: Vec<String>,
}

/// A part of a report.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Key, unique in the page: only `[a-z_]`.
    pub key: String,
    /// Title.
    pub title: String,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Plots.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Why there is nothing, and what would fill it; empty if there is something.
    pub empty: String,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Title.
    pub title: String,
    /// How to read it.
    pub about: String,
    /// Columns: headings, and whether they hold words.
    pub headings: Vec<(String, bool)>,
    /// Rows, most important first.
    pub rows: Vec<Vec<TableCell>>,
    /// Each row as a block: the first cell its headline.
    pub cards: bool,
    /// Of each row, `critical`, `high`, `medium`, `low` or `note`; empty where rows have none.
    pub severities: Vec<String>,
    /// Rows that are not in the page.
    pub left_out: usize,
    /// Reasons for unknown values.
    pub reasons: Vec<String>,
    /// Why there are no rows.
    pub empty: String,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct TableCell {
    /// As a person reads it.
    pub text: String,
    /// For sorting.
    pub number: Option<f64>,
    /// A share from 0 to 1, drawn behind the text.
    pub share: Option<f64>,
    /// What the pointer shows: a whole name, or why it is unknown.
    pub title: String,
    /// Where it leads, relative to this page; empty if nowhere.
    pub href: String,
}

/// An operator in a [`Chart::Roofline`].
#[derive(Clone, Debug, Default)]
pub struct RooflinePoint {
    /// Operations for each byte: more than 0.
    pub intensity: f64,
    /// Operations a second: more than 0.
    pub flops_per_s: f64,
    /// Share of the time, from 0 to 1: its area.
    pub share: f64,
    /// Class of its colour, only `[a-z0-9_-]`.
    pub class: String,
    /// What the pointer shows.
    pub title: String,
    /// Where it leads, relative to the page; empty if nowhere.
    pub href: String,
}

/// A plot.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Rates over intensities, both in powers of ten, below what a device can do.
    Roofline {
        /// Title.
        title: String,
        /// Bytes a second of its memory, where known.
        memory: Option<f64>,
        /// Operations a second by type, with its name.
        roofs: Vec<(String, f64)>,
        /// Classes of points and what they stand for.
        classes: Vec<(String, String)>,
        /// Operators, those with the most time first.
        points: Vec<RooflinePoint>,
    },
    /// Parts of a whole, a bar for each row.
    Stacks {
        /// Title.
        title: String,
        /// Parts: the class of their colour, only `[a-z0-9_-]`, and their names.
        parts: Vec<(String, String)>,
        /// Rows: their label, and their parts from 0 to 1.
        rows: Vec<(String, Vec<f64>)>,
    },
    /// A column for each of many.
    Columns {
        /// Title.
        title: String,
        /// Columns: their label, their value, the value as a person reads it, and
        /// whether it stands out.
        columns: Vec<(String, f64, String, bool)>,
    },
    /// Curves over the same time.
    Curves {
        /// Title.
        title: String,
        /// First and last moment, as a person reads them.
        ends: [String; 2],
        /// Curves: their name, their peak as a person reads it, and their values,
        /// evenly spaced, where known.
        curves: Vec<(String, String, Vec<Option<f64>>)>,
    },
}
