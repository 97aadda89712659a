//! The secret token that every request must contain.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Number of random bytes of a token.
const BYTES: usize = 16;

/// A secret of 128 bits, as 32 hexadecimal digits.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Creates a new token.
    pub fn random() -> io::Result<Token> {
        let mut random = [0u8; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        Ok(Token(random.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Reads the token in a file. If the file is missing, creates it with a new token.
    ///
    /// Fails if others can read the file, or if its content is not a token.
    pub fn from_file(path: &Path) -> io::Result<Token> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let mut made = OpenOptions::new();
        match made.write(true).create_new(true).mode(0o600).open(path) {
            Ok(mut file) => {
                let token = Token::random()?;
                writeln!(file, "{}", token.0)?;
                return Ok(token);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let about = fs::metadata(path)?;
        if about.mode() & 0o077 != 0 {
            return Err(refused("others can read the file; chmod 600 it"));
        }
        if about.len() > 1024 {
            return Err(refused("the file holds no token of 32 hexadecimal digits"));
        }
        let text = fs::read_to_string(path)?;
        let token = text.trim();
        match token.len() == 2 * BYTES && token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Token(token.to_owned())),
            false => Err(refused("the file holds no token of 32 hexadecimal digits")),
        }
    }

    /// Returns the token as text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this token, compared in constant time.
    pub fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differ = own.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        own.len() == given.len() && std::hint::black_box(differ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_exact_token_is_accepted() {
        let token = Token::random().unwrap();
        assert!(token.is(token.text()));
        assert!(!token.is("") && !token.is(&token.text()[1..]));
        assert!(!token.is(Token::random().unwrap().text()));
        assert!(!format!("{token:?}").contains(token.text()));
    }

    #[test]
    fn a_token_file_is_reused_and_must_be_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::from_file(&path).unwrap();
        assert_eq!(Token::from_file(&path).unwrap().text(), token.text());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::from_file(&path).is_err());
        fs::write(&path, "short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::from_file(&path).is_err());
    }
}
