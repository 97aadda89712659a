//! Finds the purpose of a span, such as loading data, from its category, or from its name if it has
//! no category.

/// Sequences of words in the names of ranges that load data, in the form of [`words`]. They occur
/// in the names of PyTorch's `enumerate(DataLoader)#….__next__` and its Python frames, of
/// TensorFlow's iterators, and of ranges in user code and recommender libraries.
const LOADING: [&str; 11] = [
    " data loader ",
    " dataloader ",
    " dataloaders ",
    " data load ",
    " dataload ",
    " data loading ",
    " dataloading ",
    " load data ",
    " load batch ",
    " next batch ",
    " get batch ",
];
/// TensorFlow's own names of such ranges.
const ITERATOR: [&str; 2] = [" iterator get next ", " iteratorgetnext "];

/// The purpose of the time in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanPurpose {
    /// The span computes something.
    Compute,
    /// It moves or allocates memory.
    Memory,
    /// It loads data.
    DataLoad,
    /// It waits for other threads or devices.
    Sync,
    /// It communicates with other ranks.
    Communication,
    /// It compiles code.
    Compile,
    /// It reads or writes files.
    Io,
}

/// Categories in lower case and without separators between words.
const CATEGORIES: [(&str, SpanPurpose); 8] = [
    ("compute", SpanPurpose::Compute),
    ("memory", SpanPurpose::Memory),
    ("dataload", SpanPurpose::DataLoad),
    ("dataloading", SpanPurpose::DataLoad),
    ("sync", SpanPurpose::Sync),
    ("communication", SpanPurpose::Communication),
    ("compile", SpanPurpose::Compile),
    ("io", SpanPurpose::Io),
];

impl SpanPurpose {
    /// Returns the purpose of a span with this name and these arguments (a JSON object); `None` if
    /// it is unknown.
    pub fn of(name: &str, args: &str) -> Option<SpanPurpose> {
        by_category(args).or_else(|| loads_data(name).then_some(SpanPurpose::DataLoad))
    }
}

fn by_category(args: &str) -> Option<SpanPurpose> {
    if !args.contains("category") {
        return None;
    }
    let args: serde_json::Value = serde_json::from_str(args).ok()?;
    let letters = args.get("category")?.as_str()?.chars().filter(|c| c.is_alphanumeric());
    let plain: String = letters.flat_map(char::to_lowercase).collect();
    CATEGORIES.iter().find(|(word, _)| *word == plain).map(|(_, stated)| *stated)
}

/// Whether the name of a range says that the range loads data.
fn loads_data(name: &str) -> bool {
    let words = words(name);
    LOADING.iter().chain(&ITERATOR).any(|part| words.contains(part))
}

/// Returns the words of a name in lower case, each between spaces: `loadData_2` becomes ` load data
/// `. Parts of words do not match: `upload_data` does not contain ` load data `.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 8);
    words.push(' ');
    let mut letters = name.chars().peekable();
    let mut was_small = false;
    let mut was_capital = false;
    while let Some(letter) = letters.next() {
        let is_capital = letter.is_uppercase();
        let next_is_small = letters.peek().is_some_and(|next| next.is_lowercase());
        let begins = is_capital && (was_small || was_capital && next_is_small);
        if (begins || !letter.is_alphabetic()) && !words.ends_with(' ') {
            words.push(' ');
        }
        if letter.is_alphabetic() {
            words.extend(letter.to_lowercase());
        }
        (was_small, was_capital) = (letter.is_lowercase(), is_capital);
    }
    if !words.ends_with(' ') {
        words.push(' ');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_decides_before_the_name() {
        assert_eq!(SpanPurpose::of("data_load", ""), Some(SpanPurpose::DataLoad));
        assert_eq!(
            SpanPurpose::of("enumerate(DataLoader)#_Iter.__next__", "{}"),
            Some(SpanPurpose::DataLoad)
        );
        assert_eq!(
            SpanPurpose::of("data_load", r#"{"category":"compute"}"#),
            Some(SpanPurpose::Compute)
        );
        for category in ["data_load", "DataLoad", "data-load", "Data Loading"] {
            let args = format!(r#"{{"n":1,"category":"{category}"}}"#);
            assert_eq!(SpanPurpose::of("x", &args), Some(SpanPurpose::DataLoad), "{category}");
        }
        for args in
            [r#"{"category":7}"#, r#"{"category":"mine"}"#, r#"{"of":"category"}"#, "category"]
        {
            assert_eq!(SpanPurpose::of("x", args), None, "{args}");
        }
    }
    #[test]
    fn only_names_with_the_words_for_loading_load_data() {
        let names = [
            "data_load",
            "DataLoad",
            "DataLoading",
            "load data",
            "Load data 3",
            "load_batch_2",
            "HTTPDataLoader",
            "_MultiProcessingDataLoaderIter",
            "dataloader",
            "IteratorGetNext",
            "get_batch",
            "train/load-data",
        ];
        for name in names {
            assert!(loads_data(name), "{name}");
        }
        let others = [
            "upload_data",
            "offload_data",
            "unload_data",
            "upload_batch",
            "metadata_load",
            "reload",
            "",
        ];
        for name in others {
            assert!(!loads_data(name), "{name}");
        }
    }
}
