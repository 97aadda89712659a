//! What a span is about, as the program says: by its category, else by its name.

/// Parts of names, in small letters, of ranges that load data: PyTorch's
/// `enumerate(DataLoader)#….__next__` and its Python frames, TensorFlow's
/// iterators, and what people and recommender libraries call their own.
const LOADING: [&str; 8] = [
    "dataloader",
    "data_load",
    "data load",
    "load_data",
    "load_batch",
    "next_batch",
    "get_batch",
    "iteratorgetnext",
];

/// What the time in a span is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stated {
    Compute,
    Memory,
    DataLoad,
    Sync,
    Communication,
    Compile,
    Io,
}

/// Categories, as they are written in small letters and without what separates words.
const CATEGORIES: [(&str, Stated); 8] = [
    ("compute", Stated::Compute),
    ("memory", Stated::Memory),
    ("dataload", Stated::DataLoad),
    ("dataloading", Stated::DataLoad),
    ("sync", Stated::Sync),
    ("communication", Stated::Communication),
    ("compile", Stated::Compile),
    ("io", Stated::Io),
];

impl Stated {
    /// Of a span of this name with these arguments, a JSON object.
    pub fn of(name: &str, args: &str) -> Option<Stated> {
        by_category(args).or_else(|| loads_data(name).then_some(Stated::DataLoad))
    }
}

fn by_category(args: &str) -> Option<Stated> {
    if !args.contains("category") {
        return None;
    }
    let args: serde_json::Value = serde_json::from_str(args).ok()?;
    let letters = args.get("category")?.as_str()?.chars().filter(|c| c.is_alphanumeric());
    let plain: String = letters.flat_map(char::to_lowercase).collect();
    CATEGORIES.iter().find(|(word, _)| *word == plain).map(|(_, stated)| *stated)
}

/// Whether a range is named like one that loads data.
fn loads_data(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    LOADING.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_decides_before_the_name() {
        assert_eq!(Stated::of("data_load", ""), Some(Stated::DataLoad));
        assert_eq!(
            Stated::of("enumerate(DataLoader)#_Iter.__next__", "{}"),
            Some(Stated::DataLoad)
        );
        assert_eq!(Stated::of("data_load", r#"{"category":"compute"}"#), Some(Stated::Compute));
        for category in ["data_load", "DataLoad", "data-load", "Data Loading"] {
            let args = format!(r#"{{"n":1,"category":"{category}"}}"#);
            assert_eq!(Stated::of("x", &args), Some(Stated::DataLoad), "{category}");
        }
        for args in
            [r#"{"category":7}"#, r#"{"category":"mine"}"#, r#"{"of":"category"}"#, "category"]
        {
            assert_eq!(Stated::of("x", args), None, "{args}");
        }
    }
}
