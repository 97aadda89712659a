//! Makes the text of a statement for a server, from the tokens that were parsed and checked here.
//!
//! A Spark server divides text into tokens in other ways than the parser here. For a server, `\` is
//! an escape within texts and continues a comment, `\r` ends a comment, and `/*+` does not begin
//! one. So what is a text or a comment here could be a statement for the server, which was never
//! checked. Therefore comments are sent as blanks and texts with the server's own escapes. Other
//! tokens that a server reads differently are refused. Line numbers stay the same.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// A statement as text for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerText {
    /// Text of the statement.
    pub text: String,
    /// The text after the first AS, which is the query if the statement is a `CREATE VIEW name AS
    /// SELECT …`.
    pub behind_as: Option<String>,
    /// Tokens in double quotes, with line and column. They are texts for a server, but names for
    /// the local engine.
    pub quoted: Vec<(String, (u64, u64))>,
}

/// Makes the text of a statement's tokens. The text begins with `before`, so that positions in it
/// equal those in the user's text. The error is a token that cannot be sent.
pub fn sent(before: &str, tokens: &[TokenWithSpan]) -> Result<ServerText, String> {
    let mut text = before.to_owned();
    let (mut behind_as, mut quoted) = (None, Vec::new());
    let mut is_prefix = false;
    for TokenWithSpan { token, span } in tokens {
        if let Token::DoubleQuotedString(value) = token {
            quoted.push((value.clone(), (span.start.line, span.start.column)));
        }
        let is_text = matches!(
            token,
            Token::SingleQuotedString(_)
                | Token::DoubleQuotedString(_)
                | Token::HexStringLiteral(_)
        );
        // A blank separates a text from a word before it, because for a server `r'…'` and `U&'…'`
        // are other kinds of texts.
        if is_text && is_prefix {
            text.push(' ');
        }
        is_prefix = matches!(token, Token::Word(_) | Token::Number(..) | Token::Ampersand);
        write(token, &mut text)?;
        if behind_as.is_none() && token.to_string().eq_ignore_ascii_case("as") {
            behind_as = Some(text.len());
        }
    }
    let behind_as = behind_as.map(|start| blank_lines(&text[..start]) + &text[start..]);
    Ok(ServerText { text, behind_as, quoted })
}

fn write(token: &Token, text: &mut String) -> Result<(), String> {
    match token {
        Token::Whitespace(Whitespace::Newline) => text.push('\n'),
        Token::Whitespace(Whitespace::Space | Whitespace::Tab) => text.push(' '),
        Token::Whitespace(comment) => *text += &blank_lines(&comment.to_string()),
        Token::SingleQuotedString(value) => quote(value, '\'', text),
        Token::DoubleQuotedString(value) => quote(value, '"', text),
        Token::HexStringLiteral(value) if value.chars().all(|c| c.is_ascii_hexdigit()) => {
            *text += &format!("X'{value}'");
        }
        Token::Word(word) => match word.quote_style {
            None => *text += &word.value,
            Some('`') => *text += &format!("`{}`", word.value.replace('`', "``")),
            Some(_) => return Err(token.to_string()),
        },
        Token::EOF => {}
        other if is_plain(other) => *text += &other.to_string(),
        other => return Err(other.to_string()),
    }
    Ok(())
}

/// Whether a token is a number or a sign, which all servers divide in the same way.
fn is_plain(token: &Token) -> bool {
    matches!(
        token,
        Token::Number(..)
            | Token::Comma
            | Token::DoubleEq
            | Token::Eq
            | Token::Neq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::Spaceship
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::LParen
            | Token::RParen
            | Token::Period
            | Token::Colon
            | Token::DoubleColon
            | Token::LBracket
            | Token::RBracket
            | Token::Ampersand
            | Token::Pipe
            | Token::Caret
            | Token::Tilde
            | Token::ShiftLeft
            | Token::ShiftRight
            | Token::ExclamationMark
            | Token::Arrow
            | Token::RArrow
    )
}

fn quote(value: &str, sign: char, text: &mut String) {
    text.push(sign);
    for c in value.chars() {
        if c == sign || c == '\\' {
            text.push('\\');
        }
        text.push(c);
    }
    text.push(sign);
}

/// Replaces every character with a blank, except line ends.
pub fn blank_lines(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use crate::statements::{Dialect, parse};

    fn sent(text: &str) -> String {
        let sources = parse(text, Dialect::Server).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        sources[0].sent.as_ref().unwrap().text.clone()
    }

    #[test]
    fn a_server_gets_only_the_checked_statement() {
        for (typed, is) in [
            ("SELECT 1 /*+ h('*/ , 2", "SELECT 1           , 2"),
            ("SELECT 1 -- a\\\n, 2", "SELECT 1      \n, 2"),
            (r"SELECT '\' AS a", r"SELECT '\\' AS a"),
            ("SELECT 'it''s' AS a", r"SELECT 'it\'s' AS a"),
            ("SELECT \"a'b\" AS a", "SELECT \"a'b\" AS a"),
            ("SELECT `we``ird` FROM t", "SELECT `we``ird` FROM t"),
            ("SELECT a /* x */ - -1", "SELECT a         - -1"),
        ] {
            assert_eq!(sent(typed), is, "{typed:?}");
        }
        assert_eq!(sent("SELECT a -- \rFROM text.`/etc/hostname`").trim_end(), "SELECT a");
    }

    #[test]
    fn texts_of_other_forms_are_not_sent_as_such() {
        for typed in [r"SELECT r'\' AS a", "SELECT $$a$$", "SELECT N'a'", "SELECT U&'a'"] {
            let sent = parse(typed, Dialect::Server);
            let sent = sent.ok().map(|all| all[0].sent.as_ref().unwrap().text.clone());
            let form = typed.split(' ').nth(1).unwrap();
            assert!(!sent.is_some_and(|sent| sent.contains(form)), "{typed}");
        }
    }
}
