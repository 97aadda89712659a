//! Puts the parts of the page together: styles, scripts, and the data of an exported page.

use std::fmt::Write as _;

use serde_json::Value;
use tprof_export::assets::{BASE_CSS, CHROME_JS, FORMAT_JS, host_names_js};
use tprof_facts::markup::escape;

const SHELL: &str = include_str!("pages/index.html");

/// Style sheets of the page.
const STYLES: [&str; 4] = [
    BASE_CSS,
    include_str!("pages/document.css"),
    include_str!("pages/app.css"),
    include_str!("pages/whole.css"),
];
/// Scripts of the page, in an order in which each uses only scripts before it.
const SCRIPTS: [&str; 29] = [
    FORMAT_JS,
    CHROME_JS,
    include_str!("pages/data.js"),
    include_str!("pages/router.js"),
    include_str!("pages/values.js"),
    include_str!("pages/table.js"),
    include_str!("pages/charts.js"),
    include_str!("pages/heat.js"),
    include_str!("pages/report_cells.js"),
    include_str!("pages/roofline.js"),
    include_str!("pages/job_charts.js"),
    include_str!("pages/report_charts.js"),
    include_str!("pages/report.js"),
    include_str!("pages/frame.js"),
    include_str!("pages/notes.js"),
    include_str!("pages/archived.js"),
    include_str!("pages/runs.js"),
    include_str!("pages/findings.js"),
    include_str!("pages/run.js"),
    include_str!("pages/whole.js"),
    include_str!("pages/embed.js"),
    include_str!("pages/live_parts.js"),
    include_str!("pages/live_charts.js"),
    include_str!("pages/live.js"),
    include_str!("pages/ranks.js"),
    include_str!("pages/compare.js"),
    include_str!("pages/compare_many.js"),
    include_str!("pages/history.js"),
    include_str!("pages/start.js"),
];

/// The nonce of an exported page. `tprof serve` replaces it where it shows such a page.
const EXPORTED_NONCE: &str = "tprof";

/// The parts in which the forms of the page differ.
#[derive(Default)]
struct Parts<'a> {
    title: &'a str,
    nonce: &'a str,
    /// Tags in the head: the page's policy, if no server sends one.
    head: &'a str,
    /// Tags before the page's own script.
    data: &'a str,
}

/// Returns the page as a server sends it. It requests its data from the server.
pub fn shell(nonce: &str) -> String {
    page(&Parts { title: "tprof", nonce, ..Parts::default() })
}

/// Returns the page of a site without a server, whose data are scripts in other files; `site` is a
/// JSON object that describes it.
pub fn static_shell(nonce: &str, site: &str) -> String {
    let data = format!(
        "<script nonce=\"{nonce}\">window.TPROF_SITE = {};</script>\n",
        within_script(site)
    );
    // The policy allows data files as scripts with the nonce, because no source expression matches
    // file:// in all browsers. It allows frames from file:, because the pages in them are files too.
    let style = format!("'nonce-{nonce}'");
    let head = policy(nonce, &style, "img-src data: blob:; frame-src 'self' file:;");
    page(&Parts { title: "tprof", nonce, head: &head, data: &data })
}

/// Returns the page of one run as a file that needs no other file and no network. `site` describes
/// the page, and `data` has the path and the JSON text of each answer that a server would give.
pub fn one_file(title: &str, site: &Value, data: &[(String, String)]) -> String {
    // The answers are inserted as texts, so that their members keep their order.
    let answers = data.iter().map(|(path, answer)| format!("{}:{answer}", Value::from(&**path)));
    let contents =
        format!("{{\"site\":{site},\"data\":{{{}}}}}", answers.collect::<Vec<_>>().join(",\n"));
    let data = format!(
        "<script type=\"application/json\" id=\"data\">{}</script>\n",
        within_script(&contents)
    );
    let head = format!(
        "{}<meta name=\"generator\" content=\"tprof {}\">\n",
        policy(EXPORTED_NONCE, "'unsafe-inline'", "img-src data: blob:;"),
        env!("CARGO_PKG_VERSION")
    );
    let title = format!("{title} – report – tprof");
    page(&Parts { title: &title, nonce: EXPORTED_NONCE, head: &head, data: &data })
}

/// Escapes JSON for a script element, which ends at the first `</script`, even inside a string.
fn within_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Returns the tag with the policy of a page that is opened as a file. A server sends its policy as
/// a header.
fn policy(nonce: &str, style: &str, more: &str) -> String {
    format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{nonce}'; \
         style-src {style}; {more} base-uri 'none'; form-action 'none'\">\n"
    )
}

fn page(parts: &Parts<'_>) -> String {
    let mut script = format!("\"use strict\";\n(() => {{\n{}\n", host_names_js());
    for text in SCRIPTS {
        let _ = writeln!(script, "{text}");
    }
    script += "})();\n";
    // The placeholders are replaced in the order in which they occur, so that none is found in the
    // text that replaces another.
    let texts = [
        ("{{HEAD}}", parts.head),
        ("{{TITLE}}", &escape(parts.title)),
        ("{{NONCE}}", parts.nonce),
        ("{{STYLE}}", &STYLES.concat()),
        ("{{DATA}}", parts.data),
        ("{{NONCE}}", parts.nonce),
        ("{{SCRIPT}}", &script),
    ];
    let (mut made, mut rest) = (String::new(), SHELL);
    for (place, text) in texts {
        if let Some((before, after)) = rest.split_once(place) {
            made += before;
            made += text;
            rest = after;
        }
    }
    made + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "</script><img src=x> {{SCRIPT}}";

    /// Returns the data of an exported page.
    fn data(page: &str) -> Value {
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_page_contains_all_parts() {
        let site = json!({ "name": HOSTILE });
        let answers = [("runs/1".to_owned(), format!("{{\"b\":1,\"a\":{}}}", json!(HOSTILE)))];
        let exported = one_file(HOSTILE, &site, &answers);
        let pages = [shell("abc"), static_shell("abc", &site.to_string()), exported];
        for page in &pages {
            for place in ["HEAD", "TITLE", "NONCE", "STYLE", "DATA"] {
                assert!(!page.contains(&format!("{{{{{place}}}}}")), "{place} is empty");
            }
            assert!(page.contains("begin();"), "the script is missing");
            assert!(page.contains(r#"native: "running native code""#), "parts have their names");
            assert!(!page.contains("<img src=x>"), "text became markup");
        }
        let is_policy = |page: &String| page.contains("http-equiv=\"Content-Security-Policy\"");
        assert_eq!(pages.each_ref().map(is_policy), [false, true, true]);
        assert!(pages[0].contains("nonce=\"abc\"") && pages[2].contains("'nonce-tprof'"));
        assert!(pages[1].contains(r#"window.TPROF_SITE = {"name":"\u003c/script>"#));
        let of_run = json!({ "b": 1, "a": HOSTILE });
        assert_eq!(data(&pages[2]), json!({ "site": site, "data": { "runs/1": of_run } }));
        assert!(pages[2].contains("{\"b\":1,\"a\":"), "members keep their order");
    }

    #[test]
    fn only_the_last_script_of_an_exported_page_runs() {
        let page = one_file("t", &json!({}), &[]);
        assert_eq!(page.matches("<script nonce=\"tprof\">").count(), 1);
        let (_, script) = page.split_once("<script nonce=\"tprof\">").unwrap();
        assert!(script.trim_end().ends_with("</script>\n</body>\n</html>"));
    }

    #[test]
    fn scripts_cannot_close_their_own_element() {
        for script in SCRIPTS {
            assert!(!script.to_lowercase().contains("</script") && !script.contains("<!--"));
        }
    }
}
