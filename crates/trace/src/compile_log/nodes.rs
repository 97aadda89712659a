//! Lines of the program that a graph's nodes come from, found in its text.

use super::graph::assigned;
use rustc_hash::FxHashMap;

/// From which lines of the program the nodes of a graph come, as Dynamo prints them: a comment `# File:
/// /job.py:15 in f, code: …` is of the nodes that follow it.
#[derive(Debug, Default)]
pub(super) struct NodeLines {
    places: Vec<String>,
    of: FxHashMap<String, usize>,
}

impl NodeLines {
    pub fn of(text: &str) -> NodeLines {
        let mut found = NodeLines::default();
        for line in text.lines() {
            let line = line.trim_start();
            if let Some(comment) = line.strip_prefix('#') {
                found.places.extend(file_comment(comment.trim()).map(str::to_owned));
            } else if let Some(last) = found.places.len().checked_sub(1)
                && assigned(line).is_some()
                && let Some(name) = line.split([':', ' ']).next()
            {
                found.of.insert(name.to_owned(), last);
            }
        }
        found
    }

    /// `FILE:LINE` of a node.
    pub fn place(&self, node: &str) -> Option<&str> {
        self.of.get(node).map(|&at| self.places[at].as_str())
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        let text = |text: &String| text.len() + size_of::<String>();
        let names = self.of.keys().map(|name| text(name) + size_of::<usize>());
        self.places.iter().map(text).sum::<usize>() + names.sum::<usize>()
    }
}

/// `FILE:LINE` of a comment `File: /job.py:15 in f, code: …`.
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
        let lines = NodeLines::of(traced);
        let found = ["l_x_", "y", "z", "relu", "return"].map(|node| lines.place(node));
        let [y, relu] = [Some("a.py:13"), Some("/b c/a.py:14")];
        assert_eq!(found, [None, y, y, relu, None]);
    }
}
