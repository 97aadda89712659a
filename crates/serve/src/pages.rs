//! The server's page, and the nonces of exported pages.

use std::fmt::Write as _;

use bytes::Bytes;
use tprof_export::assets::{BASE_CSS, CHROME_JS, DOCUMENT_CSS, FORMAT_JS, host_names_js};

const SHELL: &str = include_str!("pages/index.html");

/// Style sheet of the page.
const STYLE: &str = include_str!("pages/app.css");
/// Scripts of the page, in an order in which each uses only scripts before it.
const SCRIPTS: [&str; 24] = [
    include_str!("pages/data.js"),
    include_str!("pages/router.js"),
    include_str!("pages/values.js"),
    include_str!("pages/table.js"),
    include_str!("pages/charts.js"),
    include_str!("pages/heat.js"),
    include_str!("pages/report_cells.js"),
    include_str!("pages/report_charts.js"),
    include_str!("pages/report.js"),
    include_str!("pages/frame.js"),
    include_str!("pages/notes.js"),
    include_str!("pages/archived.js"),
    include_str!("pages/runs.js"),
    include_str!("pages/findings.js"),
    include_str!("pages/run.js"),
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

/// Returns the page as this server sends it.
pub fn shell(nonce: &str) -> String {
    page(nonce, "", "")
}

/// Returns the page of a site without a server; `site` is a JSON object that describes it.
pub fn static_shell(nonce: &str, site: &str) -> String {
    // The browser ends a script at the first `</script`, even inside a string.
    let site = format!("window.TPROF_SITE = {};", site.replace('<', "\\u003c"));
    // A server sends its content policy as a header. A page that is opened as a file must have the
    // policy in a `<meta>`. The policy allows data files as scripts with the nonce, because no
    // source expression matches file:// in all browsers. It allows frames from file:, because the
    // pages in them are files too.
    let policy = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{nonce}'; \
         style-src 'nonce-{nonce}'; img-src data: blob:; frame-src 'self' file:; base-uri 'none'; \
         form-action 'none'\">\n"
    );
    page(nonce, &site, &policy)
}

fn page(nonce: &str, site: &str, policy: &str) -> String {
    let mut script = format!("\"use strict\";\n(() => {{\n{}\n", host_names_js());
    for text in [FORMAT_JS, CHROME_JS].iter().chain(&SCRIPTS) {
        let _ = writeln!(script, "{text}");
    }
    script += "})();\n";
    SHELL
        .replace("{{POLICY}}", policy)
        .replace("{{NONCE}}", nonce)
        .replace("{{STYLE}}", &format!("{BASE_CSS}{DOCUMENT_CSS}{STYLE}"))
        .replace("{{SCRIPT}}", &script)
        // This replacement comes last: its text contains names of runs, which may look like another
        // placeholder.
        .replace("{{SITE}}", site)
}

/// The nonce in the policy of an exported page.
const EXPORTED_NONCE: &[u8] = b"'nonce-tprof'";
/// The tag that begins the script of an exported page.
const EXPORTED_SCRIPT: &[u8] = b"<script nonce=\"tprof\">";
/// The policy of an exported page is within this many bytes from its beginning.
const HEAD_BYTES: usize = 1024;

/// Returns an exported page with another nonce. Text of the run may contain [`EXPORTED_SCRIPT`]
/// too, but all of it precedes the page's own script. Therefore only the last such tag gets the
/// nonce.
pub fn with_nonce(page: &Bytes, nonce: &str) -> Bytes {
    let script = page.windows(EXPORTED_SCRIPT.len()).rposition(|text| text == EXPORTED_SCRIPT);
    let policy = page[..HEAD_BYTES.min(page.len())]
        .windows(EXPORTED_NONCE.len())
        .position(|text| text == EXPORTED_NONCE);
    let (Some(script), Some(policy)) = (script, policy) else { return page.clone() };
    let mut made = Vec::with_capacity(page.len() + 2 * nonce.len());
    made.extend_from_slice(&page[..policy]);
    made.extend_from_slice(format!("'nonce-{nonce}'").as_bytes());
    made.extend_from_slice(&page[policy + EXPORTED_NONCE.len()..script]);
    made.extend_from_slice(format!("<script nonce=\"{nonce}\">").as_bytes());
    made.extend_from_slice(&page[script + EXPORTED_SCRIPT.len()..]);
    made.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_script_of_a_page_gets_the_nonce() {
        let hostile = "<script nonce=\"tprof\">evil</script>";
        let page = format!(
            "<meta content=\"'nonce-tprof'\">{hostile}<script nonce=\"tprof\">own</script>"
        );
        let made = with_nonce(&page.into(), "7");
        let expected =
            format!("<meta content=\"'nonce-7'\">{hostile}<script nonce=\"7\">own</script>");
        assert_eq!(made, expected.as_bytes());
    }

    #[test]
    fn the_page_contains_all_parts() {
        let page = shell("abc");
        let site = static_shell("abc", "{\"name\": \"</script>\"}");
        for place in ["NONCE", "POLICY", "STYLE", "SCRIPT", "SITE"] {
            let place = format!("{{{{{place}}}}}");
            assert!(!page.contains(&place) && !site.contains(&place), "{place} is empty");
        }
        assert!(page.contains("nonce=\"abc\"") && !page.contains("http-equiv"));
        assert!(site.contains("http-equiv=\"Content-Security-Policy\""));
        assert!(
            page.contains(r#"native: "running native code""#),
            "the page names the part as reports do"
        );
        assert!(site.contains(r#"window.TPROF_SITE = {"name": "\u003c/script>"};"#));
    }
}
