//! Writes the log of what truly ran: one line of JSON for each event, in `FAKE_CUDA_LOG/PID.jsonl`.
//! Each line is written at once, so that the log of a killed process is complete.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock};
use tprof_fake_cuda::{Happened, Place};

fn write(text: &str) {
    static FILE: Mutex<Option<(u32, File)>> = Mutex::new(None);
    let Some(folder) = folder() else { return };
    let mut file = FILE.lock().unwrap_or_else(|e| e.into_inner());
    let pid = std::process::id();
    if file.as_ref().is_none_or(|(of, _)| *of != pid) {
        let path = format!("{folder}/{pid}.jsonl");
        *file =
            OpenOptions::new().create(true).append(true).open(path).ok().map(|file| (pid, file));
    }
    if let Some((_, file)) = file.as_mut() {
        let _ = file.write_all(text.as_bytes());
    }
}

fn folder() -> Option<&'static str> {
    static FOLDER: OnceLock<Option<String>> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::var("FAKE_CUDA_LOG").ok()).as_deref()
}

/// Writes a line from another stand-in.
pub extern "C" fn line(text: *const u8, len: usize) {
    if folder().is_some() {
        // SAFETY: the caller passes `len` bytes that stay valid during this call.
        let text = unsafe { std::slice::from_raw_parts(text, len) };
        write(&format!("{}\n", String::from_utf8_lossy(text)));
    }
}

/// Logs that something ran, or that the host waited.
pub fn happened(at: &Place, start: u64, end: u64, what: &Happened) {
    if folder().is_none() {
        return;
    }
    let what = match what {
        Happened::Kernel(k) => {
            // SAFETY: the name ends with a zero and lives as long as the process.
            let name = unsafe { CStr::from_ptr(k.name) }.to_string_lossy();
            format!(
                "\"what\":\"kernel\",\"name\":\"{name}\",\"grid\":{:?},\"block\":{:?},\
                 \"dynamic_shared\":{},\"static_shared\":{},\"registers\":{}",
                k.grid, k.block, k.dynamic_shared, k.static_shared, k.registers
            )
        }
        Happened::Copy(bytes, kind, from, to) => {
            format!(
                "\"what\":\"copy\",\"bytes\":{bytes},\"kind\":{kind},\"from\":{from},\"to\":{to}"
            )
        }
        Happened::Fill(bytes, value, kind) => {
            format!("\"what\":\"fill\",\"bytes\":{bytes},\"value\":{value},\"memory\":{kind}")
        }
        Happened::PeerCopy(bytes, from, to) => {
            format!("\"what\":\"peer copy\",\"bytes\":{bytes},\"from\":{from},\"to\":{to}")
        }
        Happened::Wait(kind, event) => {
            format!("\"what\":\"wait\",\"kind\":{kind},\"event\":{event}")
        }
        Happened::Memory(operation, kind, address, bytes) => format!(
            "\"what\":\"memory\",\"operation\":{operation},\"kind\":{kind},\
             \"address\":{address},\"bytes\":{bytes}"
        ),
        Happened::PoolMemory(operation, address, bytes, [_, held, given]) => format!(
            "\"what\":\"memory\",\"operation\":{operation},\"kind\":{},\
             \"address\":{address},\"bytes\":{bytes},\"held\":{held},\"given\":{given}",
            tprof_fake_cuda::memory::POOL
        ),
        Happened::Context(_) => "\"what\":\"context\"".to_owned(),
        Happened::Stream(priority) => format!("\"what\":\"stream\",\"priority\":{priority}"),
        Happened::Graph => "\"what\":\"graph\"".to_owned(),
        Happened::Device => "\"what\":\"device\"".to_owned(),
        Happened::Call(..) | Happened::DriverCall(..) => return,
    };
    write(&format!(
        "{{{what},\"device\":{},\"context\":{},\"stream\":{},\"correlation\":{},\"graph\":{},\
         \"node\":{},\"start\":{start},\"end\":{end}}}\n",
        at.device, at.context, at.stream, at.correlation, at.graph, at.node
    ));
}

/// Logs that a call returned.
pub fn call(of: &str, name: &CStr, at: &Place, thread: u32, start: u64, end: u64, result: u32) {
    if folder().is_some() {
        write(&format!(
            "{{\"what\":\"{of}\",\"name\":\"{}\",\"thread\":{thread},\"correlation\":{},\
             \"result\":{result},\"start\":{start},\"end\":{end}}}\n",
            name.to_string_lossy(),
            at.correlation
        ));
    }
}
