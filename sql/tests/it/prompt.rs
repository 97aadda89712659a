//! Tests the prompt of `tprof sql` on a terminal (pty) of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::runs::{program, runs};

/// If the prompt prints nothing for this long, the test fails, ms.
const MAX_SILENCE_MS: u16 = 60_000;

/// A running prompt, and the terminal on which it runs.
pub struct Terminal {
    /// `setsid`, or the program itself if `setsid` replaced itself by it.
    child: Child,
    /// The test's end of the terminal.
    end: File,
    /// Output that [`Self::until`] has read but not returned yet.
    unread: String,
    /// The directory in which the program keeps its state, such as the history of statements.
    state: TempDir,
}

impl Terminal {
    /// Starts a prompt with the test run, and waits until it is ready. Long results go through the
    /// command `pager`.
    fn open(pager: &str) -> Terminal {
        Terminal::of(&[runs().run().to_str().unwrap()], pager)
    }

    /// Starts a prompt with these arguments, and waits until it is ready.
    pub fn of(arguments: &[&str], pager: &str) -> Terminal {
        let size = nix::pty::Winsize { ws_row: 20, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let state = TempDir::new().unwrap();
        let slave = || Stdio::from(File::from(pty.slave.try_clone().unwrap()));
        // `setsid` makes this the controlling terminal of a new session, because only then Ctrl-C
        // sends a signal.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program([runs().run()]).get_program());
        command.args(arguments).env_remove("SPARK_CONNECT_AUTHENTICATE_TOKEN");
        command.stdin(slave()).stdout(slave()).stderr(slave());
        command.env("TERM", "xterm").env("PAGER", pager).env("XDG_STATE_HOME", state.path());
        let child = command.spawn().unwrap();
        drop((command, pty.slave));
        let mut terminal = Terminal { child, end: pty.master.into(), unread: String::new(), state };
        terminal.until("tprof> ");
        terminal
    }

    /// Sends keys to the prompt: `\r` is Enter, `\t` Tab, `\x02` one character to the left.
    pub fn type_in(&mut self, keys: &str) {
        self.end.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until a text has arrived, and returns everything before it and the text itself. Fails
    /// if it doesn't arrive.
    pub fn until(&mut self, wanted: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            if let Some(start) = self.unread.find(wanted) {
                let rest = self.unread.split_off(start + wanted.len());
                return std::mem::replace(&mut self.unread, rest);
            }
            let mut ready = [PollFd::new(self.end.as_fd(), PollFlags::POLLIN)];
            let count = poll(&mut ready, PollTimeout::from(MAX_SILENCE_MS)).unwrap();
            assert!(
                count > 0,
                "the prompt printed nothing more, and `{wanted}` is not in: {}",
                self.unread
            );
            match self.end.read(&mut bytes) {
                Ok(0) | Err(_) => panic!("the prompt ended without `{wanted}`: {}", self.unread),
                Ok(count) => self.unread += &String::from_utf8_lossy(&bytes[..count]),
            }
        }
    }

    /// Leaves the prompt by Ctrl-D. Returns its exit status and the directory of its state.
    pub fn leave(mut self) -> (i32, TempDir) {
        self.type_in("\x04");
        let mut rest = Vec::new();
        // The error is ignored: on Linux, a read fails when the terminal's other end is closed.
        let _ = self.end.read_to_end(&mut rest);
        (self.child.wait().unwrap().code().unwrap(), self.state)
    }
}

#[test]
fn statements_of_several_lines_end_at_a_semicolon() {
    let mut terminal = Terminal::open("cat");
    terminal.type_in("SELECT 40\r");
    terminal.type_in("+ 2\rAS answer;\r");
    terminal.until("answer\r\n      42");
    terminal.until("1 row");
    terminal.until("tprof> ");
    terminal.type_in("\\d kernels\r");
    terminal.until("duration_ns");
    terminal.until("tprof> ");
    terminal.type_in("\\timing\r");
    terminal.until("timing is on");
    terminal.type_in("SELECT nam FROM kernels;\r");
    terminal.until("the nearest name is `name`");
    terminal.until("tprof> ");
    terminal.type_in("\\format json\r");
    terminal.until("tprof> ");
    terminal.type_in("SELECT 1 AS a;\r");
    terminal.until("[{\"a\":1}]");
    terminal.until("time: ");
    terminal.until("tprof> ");
    let (code, state) = terminal.leave();
    assert_eq!(code, 0);
    let history = state.path().join("tprof/sql_history");
    let mode = std::fs::metadata(&history).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(history).unwrap().contains("SELECT 1 AS a;"));
}

#[test]
fn names_are_completed() {
    let mut terminal = Terminal::open("cat");
    terminal.type_in("SELECT max(k.size) FROM communic\t AS k, kernels LIMIT 1;\r");
    terminal.until("1 row");
    terminal.until("tprof> ");
    // Columns are completed only after their table was typed, so the cursor moves back to the end
    // of `regis`.
    let back = "\x02".repeat(" FROM kernels LIMIT 1;".len());
    terminal.type_in(&format!("SELECT regis FROM kernels LIMIT 1;{back}\t\r"));
    terminal.until("1 row");
    terminal.until("tprof> ");
    terminal.type_in("\\tim\t\r");
    terminal.until("timing is on");
    terminal.until("tprof> ");
    assert_eq!(terminal.leave().0, 0);
}

#[test]
fn ctrl_c_interrupts_the_query_and_not_the_prompt() {
    let mut terminal = Terminal::open("cat");
    terminal.type_in(
        "SELECT 7 AS b; SELECT count(*) FROM generate_series(1, 1000) a, generate_series(1, 100000000000) b;\r",
    );
    // The first result has arrived, so the second statement is running now.
    terminal.until("1 row\r\n");
    terminal.type_in("\x03");
    terminal.until("interrupted");
    terminal.until("tprof> ");
    terminal.type_in("SELECT 'still' || ' here' AS a;\r");
    terminal.until("still here\r\n");
    terminal.until("tprof> ");
    // At the prompt, Ctrl-C discards what was typed.
    terminal.type_in("SELECT nothing");
    terminal.until("nothing");
    terminal.type_in("\x03");
    terminal.until("\n");
    terminal.until("tprof> ");
    assert_eq!(terminal.leave().0, 0);
}

#[test]
fn long_results_go_through_the_pager() {
    let mut terminal = Terminal::open("sed s/^/paged:/");
    terminal.type_in("SELECT value FROM generate_series(1, 5);\r");
    assert!(!terminal.until("5 rows").contains("paged:"));
    terminal.until("tprof> ");
    terminal.type_in("SELECT value FROM generate_series(1, 50);\r");
    terminal.until("paged:");
    terminal.until("50 rows");
    terminal.until("tprof> ");
    assert_eq!(terminal.leave().0, 0);
}

#[test]
fn a_signal_from_another_process_ends_the_prompt() {
    let mut terminal = Terminal::open("cat");
    terminal.type_in("SELECT 1 AS a;\r");
    terminal.until("1 row");
    terminal.until("tprof> ");
    // The signal must go to the program and not to `setsid`. `setsid` forks only if it leads a
    // process group; otherwise it replaces itself by the program and has no child.
    let child = terminal.child.id();
    let children = std::fs::read_to_string(format!("/proc/{child}/task/{child}/children")).unwrap();
    let program = children.trim().parse().unwrap_or(child as i32);
    kill(Pid::from_raw(program), Signal::SIGTERM).unwrap();
    let _ = terminal.end.read_to_end(&mut Vec::new());
    assert!(!terminal.child.wait().unwrap().success());
}
