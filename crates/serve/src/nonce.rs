//! Gives exported pages, which have a fixed nonce, the nonce of an answer.

use bytes::Bytes;

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
}
