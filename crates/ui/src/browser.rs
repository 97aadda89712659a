//! Opens a URL in a browser without showing the URL to other users. Everyone can read the arguments
//! of a process in `/proc`, so the opener's argument is a file that redirects to the URL.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long to wait for an opener. Most pass the file to a browser and exit; a browser itself may
/// keep running.
const HANDED_OVER: Duration = Duration::from_millis(200);

/// Opens the URL, and returns whether an opener accepted it. `folder` must be a directory that only
/// this user can enter.
pub fn open(url: &str, folder: &Path) -> io::Result<bool> {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"];
    if !has_display.iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty())) {
        return Ok(false);
    }
    let page = leading_to(url, folder)?;
    let named = std::env::var("BROWSER").ok().filter(|name| Path::new(name).is_absolute());
    let openers = named.into_iter().chain(["xdg-open".to_owned(), "wslview".to_owned()]);
    for opener in openers {
        let mut command = Command::new(opener);
        let quiet = command.arg(&page).stdin(Stdio::null()).stdout(Stdio::null());
        if let Ok(mut child) = quiet.stderr(Stdio::null()).spawn() {
            std::thread::sleep(HANDED_OVER);
            match child.try_wait() {
                Ok(Some(status)) if !status.success() => continue,
                _ => return Ok(true),
            }
        }
    }
    Ok(false)
}

/// Writes a page that redirects a browser to `url`, and returns its path.
fn leading_to(url: &str, folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("tprof-open.html");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let url = escaped(url);
    write!(
        file,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n\
         <title>tprof</title>\n</head>\n\
         <body><p><a href=\"{url}\">Open the run</a></p></body>\n</html>\n"
    )?;
    Ok(path)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_owner_can_read_the_page_with_the_address() {
        let folder = tempfile::tempdir().unwrap();
        let page = leading_to("http://127.0.0.1:1/a?b=\"c\"&d", folder.path()).unwrap();
        assert_eq!(page.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&page).unwrap();
        let address = "http://127.0.0.1:1/a?b=&quot;c&quot;&amp;d";
        assert!(text.contains(&format!("content=\"0; url={address}\"")), "{text}");
        assert!(text.contains(&format!("<a href=\"{address}\">")), "{text}");
    }
}
