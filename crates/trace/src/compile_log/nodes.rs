//! Finds, in a graph's text, the lines of the program that the graph's nodes come from.

use super::graph::assigned;
use rustc_hash::FxHashMap;

/// Bytes of an entry in addition to its text.
const ENTRY_BYTES: usize = 48;

/// The lines of the program that the nodes of a graph come from. PyTorch prints a line as a comment
/// before its nodes: `# File: /job.py:15 in f, code: …`. The comment applies to all following nodes
/// until the next such comment, or until a comment says that the nodes after it have no stack
/// trace.
#[derive(Debug, Default)]
pub(super) struct NodeLines {
    places: Vec<String>,
    place_of: FxHashMap<String, usize>,
    /// The place of the nodes that are read next; an index into `places`.
    current: Option<usize>,
    /// Approximate size of the places and names, bytes.
    pub bytes: usize,
}

impl NodeLines {
    /// Reads the places from a graph's text; `None` if they take more bytes than `most`.
    pub fn of(text: &str, most: usize) -> Option<NodeLines> {
        let mut found = NodeLines::default();
        for line in text.lines() {
            let line = line.trim_start();
            if let Some(comment) = line.strip_prefix('#') {
                if let Some(place) = file_comment(comment.trim()) {
                    found.bytes += place.len() + ENTRY_BYTES;
                    found.current = Some(found.places.len());
                    found.places.push(place.to_owned());
                } else if comment.trim().starts_with("No stacktrace found") {
                    found.current = None;
                }
            } else if let Some(last) = found.current
                && assigned(line).is_some()
                && let Some(name) = line.split([':', ' ']).next()
            {
                found.bytes += name.len() + ENTRY_BYTES;
                found.place_of.insert(name.to_owned(), last);
            }
            if found.bytes > most {
                return None;
            }
        }
        Some(found)
    }

    /// Returns the place of a node as `FILE:LINE`.
    pub fn place(&self, node: &str) -> Option<&str> {
        self.place_of.get(node).map(|&at| self.places[at].as_str())
    }
}

/// Returns `FILE:LINE` from a comment `File: /job.py:15 in f, code: …`.
pub(super) fn file_comment(text: &str) -> Option<&str> {
    let place = text.strip_prefix("File: ")?;
    let place = place.split(", code:").next().unwrap_or(place);
    Some(place.split(" in ").next().unwrap_or(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_line_of_the_comment_before_them() {
        let traced = "class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: \"f32[4]\"):\n        \
                      l_x_ = L_x_\n\n        # File: a.py:13 in f, code: y = x.sin()\n        \
                      y: \"f32[4][1]cpu\" = l_x_.sin();  l_x_ = None\n        z = y + 1\n        \
                      # File: /b c/a.py:14 in g, code: # File: no\n        relu = torch.relu(z)\n        return (relu,)\n";
        let lines = NodeLines::of(traced, 1 << 20).unwrap();
        assert!(NodeLines::of(traced, lines.bytes - 1).is_none());
        let found = ["l_x_", "y", "z", "relu", "return"].map(|node| lines.place(node));
        let [y, relu] = [Some("a.py:13"), Some("/b c/a.py:14")];
        assert_eq!(found, [None, y, y, relu, None]);
    }
}
