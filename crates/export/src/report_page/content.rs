//! Defines the content of a report page.

/// The content of a report.
#[derive(Clone, Debug, Default)]
pub struct ReportPage {
    /// Line below the title: where and when the job ran.
    pub about: String,
    /// Figures at the top of the page.
    pub facts: Vec<Fact>,
    /// Whether everything was recorded, and which parts were not.
    pub complete: Completeness,
    /// Sections of the report.
    pub sections: Vec<Section>,
    /// Other pages of the run: their names, and their paths relative to this page.
    pub links: Vec<(String, String)>,
}

/// A figure with its name.
#[derive(Clone, Debug, Default)]
pub struct Fact {
    /// Name of the figure.
    pub name: String,
    /// Value as text.
    pub value: String,
    /// Remark about the value, or the reason why it is unknown.
    pub remark: String,
}

/// Whether the recording is complete, and the parts that are missing.
#[derive(Clone, Debug, Default)]
pub struct Completeness {
    /// Whether nothing was lost and every process was recorded.
    pub whole: bool,
    /// The same fact as a sentence.
    pub sentence: String,
    /// Sentences about the parts that are missing.
    pub gaps: Vec<String>,
}

/// A part of a report.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Key, unique in the page, made of `[a-z_]`.
    pub key: String,
    /// Title of the section.
    pub title: String,
    /// Notes for people who read the section.
    pub notes: Vec<String>,
    /// Plots of the section.
    pub charts: Vec<Chart>,
    /// Tables of the section.
    pub tables: Vec<Table>,
    /// If the section is empty, the reason and how to record its data. Otherwise an empty string.
    pub empty: String,
}

/// A table of the report.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// How to read the table.
    pub about: String,
    /// For each column, the heading and whether its cells are words.
    pub headings: Vec<(String, bool)>,
    /// Rows, most important first.
    pub rows: Vec<Vec<TableCell>>,
    /// Whether each row is shown as a block with the first cell as its headline.
    pub cards: bool,
    /// Severity of each row: `critical`, `high`, `medium`, `low` or `note`; empty if rows have
    /// none.
    pub severities: Vec<String>,
    /// Number of rows that the page leaves out.
    pub left_out: usize,
    /// Reasons for unknown values.
    pub reasons: Vec<String>,
    /// If the table has no rows, the reason.
    pub empty: String,
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub struct TableCell {
    /// Content as text.
    pub text: String,
    /// Number to sort by.
    pub number: Option<f64>,
    /// A share from 0 to 1, drawn behind the text.
    pub share: Option<f64>,
    /// Tooltip: the whole name, or the reason why the value is unknown.
    pub title: String,
    /// Link relative to this page; empty for none.
    pub href: String,
}

/// An operator in a [`Chart::Roofline`].
#[derive(Clone, Debug, Default)]
pub struct RooflinePoint {
    /// Operations per byte, greater than 0.
    pub intensity: f64,
    /// Operations per second, greater than 0.
    pub flops_per_s: f64,
    /// Share of the time, from 0 to 1, shown as the point's area.
    pub share: f64,
    /// CSS class of its colour, made of `[a-z0-9_-]`.
    pub class: String,
    /// Tooltip of the point.
    pub title: String,
    /// Link relative to this page; empty for none.
    pub href: String,
}

/// A plot of the report.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Operation rates over intensities, below the limits of a device. Both axes are logarithmic.
    Roofline {
        /// Title of the plot.
        title: String,
        /// Memory bandwidth of the device in bytes per second, if known.
        memory: Option<f64>,
        /// Peak operations per second of each data type, with its name.
        roofs: Vec<(String, f64)>,
        /// Classes of points and their meaning.
        classes: Vec<(String, String)>,
        /// Operators, those with the most time first.
        points: Vec<RooflinePoint>,
    },
    /// One bar for each row, divided into parts of a whole.
    Stacks {
        /// Title of the plot.
        title: String,
        /// CSS class (of `[a-z0-9_-]`) and name of each part.
        parts: Vec<(String, String)>,
        /// Label of each row, and its parts from 0 to 1.
        rows: Vec<(String, Vec<f64>)>,
    },
    /// One column for each value.
    Columns {
        /// Title of the plot.
        title: String,
        /// Label and value of each column, the value as text, and whether the column stands out.
        columns: Vec<(String, f64, String, bool)>,
    },
    /// Several curves over the same period.
    Curves {
        /// Title of the plot.
        title: String,
        /// First and last moment as text.
        ends: [String; 2],
        /// For each curve, its name, its peak as text, and its evenly spaced values; `None` where a
        /// value is unknown.
        curves: Vec<(String, String, Vec<Option<f64>>)>,
    },
}
