//! Formats the inputs of operators as torch.profiler formats them.

use crate::targets::interned::Interned;
use std::collections::HashMap;
use std::fmt::Write;
use tprof_trace::TraceWriter;
use tprof_trace::model::NameId;
use tprof_wire::operators::{Input, MAX_LISTED, MAX_NUMBERS, NO_TYPE};

/// Number of lists that get a text. A limit is needed for programs with ever new sizes, which would
/// fill the memory.
const MAX_TEXTS: usize = 65_536;

/// Texts of lists of inputs, by the ids of the lists.
#[derive(Debug, Default)]
pub struct InputTexts {
    known: HashMap<u32, NameId>,
    /// Number of operators that are written without sizes, because there were too many different
    /// lists.
    pub left_out: u64,
}

impl InputTexts {
    /// Returns the id of the text of a list, a JSON object; `None` if the list is not defined yet.
    pub fn text(
        &mut self,
        id: u32,
        interned: &Interned,
        writer: &mut TraceWriter,
    ) -> Option<NameId> {
        if id == 0 {
            return Some(NameId::default());
        }
        if let Some(name) = self.known.get(&id) {
            return Some(*name);
        }
        let bytes = interned.sizes(id)?;
        if self.known.len() >= MAX_TEXTS {
            self.left_out += 1;
            return Some(NameId::default());
        }
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let name = describe(&words).map(|text| writer.name(&text)).unwrap_or_default();
        self.known.insert(id, name);
        Some(name)
    }
}

/// Formats a list as JSON, like `{"Input Dims":[[8,3],[]],"Input
/// type":["float","ScalarList"],"Concrete Inputs":["","[1, 1]"]}`; `None` if the list is malformed.
/// "Concrete Inputs" is left out if no input has a value. "Tensor types" is left out if no input is
/// a list of tensors of one type.
fn describe(mut words: &[u64]) -> Option<String> {
    let (mut dims, mut types) = (Vec::new(), Vec::new());
    let (mut values, mut of_lists) = (Vec::new(), Vec::new());
    let mut is_whole = true;
    while !words.is_empty() {
        let (mut value, mut of_tensors) = (String::new(), String::new());
        let (of_one, of) = match next(&mut words)? {
            InputValue::Input(dims, of) => (dims, of),
            InputValue::Value(of, text) => {
                value = text;
                ("[]".to_owned(), of.to_owned())
            }
            InputValue::List(count) => {
                let mut of_list = Vec::new();
                let mut of_all: Option<String> = None;
                while of_list.len() < count && is_whole {
                    match next(&mut words)? {
                        InputValue::Input(dims, of) => {
                            of_list.push(dims);
                            let is_same = of_all.as_ref().is_none_or(|all| *all == of);
                            of_all = Some(if is_same { of } else { String::new() });
                        }
                        InputValue::More => is_whole = false,
                        InputValue::List(_) | InputValue::Value(..) => return None,
                    }
                }
                of_tensors = of_all.unwrap_or_default();
                (format!("[{}]", of_list.join(",")), "TensorList".to_owned())
            }
            InputValue::More => {
                is_whole = false;
                break;
            }
        };
        dims.push(of_one);
        types.push(of);
        values.push(value);
        of_lists.push(of_tensors);
    }
    let texts = |all: &[String]| {
        let quoted = all.iter().map(|text| serde_json::Value::from(text.as_str()).to_string());
        quoted.collect::<Vec<_>>().join(",")
    };
    let mut text = format!(r#"{{"Input Dims":[{}],"#, dims.join(","));
    write!(text, r#""Input type":[{}]"#, texts(&types)).ok()?;
    for (key, all) in [("Concrete Inputs", &values), ("Tensor types", &of_lists)] {
        if all.iter().any(|one| !one.is_empty()) {
            write!(text, r#","{key}":[{}]"#, texts(all)).ok()?;
        }
    }
    if !is_whole {
        text += r#","Input count":"more than these""#;
    }
    Some(text + "}")
}

/// The next input in a list.
enum InputValue {
    /// A tensor or another input: its sizes and its type.
    Input(String, String),
    /// A value: its type and its text.
    Value(&'static str, String),
    /// A list of this many tensors, which follow.
    List(usize),
    /// There were more inputs than fit into the record.
    More,
}

fn next(words: &mut &[u64]) -> Option<InputValue> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    let none = "[]".to_owned();
    Some(match Input::unpack(*first)? {
        Input::Tensor { dims, of } => {
            let (sizes, rest) = words.split_at_checked(usize::from(dims))?;
            *words = rest;
            let sizes: Vec<String> = sizes.iter().map(|size| (*size as i64).to_string()).collect();
            InputValue::Input(format!("[{}]", sizes.join(",")), type_name(of))
        }
        Input::Tensors { count } => match count as usize {
            count @ 0..=MAX_LISTED => InputValue::List(count),
            _ => InputValue::Input(none, "TensorList".to_owned()),
        },
        Input::Truth { value } => InputValue::Value("Scalar", truth(value).to_owned()),
        Input::Numbers { count, truths } => {
            let count = Some(count as usize).filter(|count| *count <= MAX_NUMBERS)?;
            let (numbers, rest) = words.split_at_checked(count)?;
            *words = rest;
            let number = |number: &u64| match truths {
                true => truth(*number != 0).to_owned(),
                false => (*number as i64).to_string(),
            };
            let numbers: Vec<String> = numbers.iter().map(number).collect();
            InputValue::Value("ScalarList", format!("[{}]", numbers.join(", ")))
        }
        Input::Other { tag } => InputValue::Input(none, other(tag).to_owned()),
        Input::Unread => InputValue::Input(none, String::new()),
        Input::More => InputValue::More,
    })
}

fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Names the type of an `IValue` that isn't a tensor, by its tag. The tags of numbers are the same
/// in all versions. Tag 9 is a boolean in PyTorch 2.1 to 2.8, and a symbolic number in later
/// versions. It appears here only if the process did not find the tag of booleans.
fn other(tag: u32) -> &'static str {
    match tag {
        3..=5 | 9 => "Scalar",
        _ => "",
    }
}

/// Returns the name that PyTorch's traces use for a `c10::ScalarType`.
fn type_name(number: u8) -> String {
    let name = match number {
        0 => "unsigned char",
        1 => "signed char",
        2 => "short int",
        3 => "int",
        4 => "long int",
        5 => "c10::Half",
        6 => "float",
        7 => "double",
        8 => "c10::complex<c10::Half>",
        9 => "c10::complex<float>",
        10 => "c10::complex<double>",
        11 => "bool",
        15 => "c10::BFloat16",
        23 => "c10::Float8_e5m2",
        24 => "c10::Float8_e4m3fn",
        NO_TYPE => "",
        _ => return format!("c10::ScalarType {number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_format_of_torch_profiler() {
        let tensor = |dims, of| Input::Tensor { dims, of }.pack();
        let words = [tensor(2, 6), 64, 3, tensor(0, 7), Input::Other { tag: 5 }.pack()];
        let text = describe(&words).unwrap();
        assert_eq!(
            text,
            r#"{"Input Dims":[[64,3],[],[]],"Input type":["float","double","Scalar"]}"#
        );
        let list = |count| Input::Tensors { count }.pack();
        let words =
            [list(2), tensor(1, 6), 9, Input::Unread.pack(), list(31), list(0), tensor(0, 6)];
        let value: serde_json::Value = serde_json::from_str(&describe(&words).unwrap()).unwrap();
        assert_eq!(value["Input Dims"], serde_json::json!([[[9], []], [], [], []]));
        let types = serde_json::json!(["TensorList", "TensorList", "TensorList", "float"]);
        assert_eq!(value["Input type"], types);
        assert_eq!(
            value["Tensor types"],
            serde_json::Value::Null,
            "the type of one tensor is unknown"
        );
        let list = [list(2), tensor(1, 6), 9, tensor(1, 6), 7];
        let value: serde_json::Value = serde_json::from_str(&describe(&list).unwrap()).unwrap();
        assert_eq!(value["Tensor types"], serde_json::json!(["float"]));
        let numbers = |count, truths| Input::Numbers { count, truths }.pack();
        let truth = Input::Truth { value: true }.pack();
        let words =
            [tensor(1, 6), 3, numbers(2, false), 1, -1_i64 as u64, truth, numbers(1, true), 0];
        let text = describe(&words).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["Input type"],
            serde_json::json!(["float", "ScalarList", "Scalar", "ScalarList"])
        );
        assert_eq!(value["Concrete Inputs"], serde_json::json!(["", "[1, -1]", "True", "[False]"]));
        let truth = Input::Other { tag: 9 }.pack();
        let words =
            [Input::Unread.pack(), Input::Other { tag: 0 }.pack(), truth, Input::More.pack()];
        let value: serde_json::Value = serde_json::from_str(&describe(&words).unwrap()).unwrap();
        assert_eq!(value["Input type"], serde_json::json!(["", "", "Scalar"]));
        assert_eq!(value["Input Dims"], serde_json::json!([[], [], []]));
        assert_eq!(value["Input count"], "more than these");
    }

    #[test]
    fn a_malformed_list_has_no_text() {
        assert_eq!(describe(&[0]), None);
        assert_eq!(describe(&[Input::Tensor { dims: 3, of: 6 }.pack(), 1, 2]), None);
        assert_eq!(describe(&[Input::Tensors { count: 2 }.pack(), Input::Unread.pack()]), None);
        for count in [2, 17, u32::MAX] {
            assert_eq!(describe(&[Input::Numbers { count, truths: false }.pack(), 1]), None);
        }
    }
}
