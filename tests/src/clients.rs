//! Finds the third-party packages that tests run tprof against: NVIDIA's NVTX for C and for Python,
//! Intel's ITT for Python, TensorBoard and junitparser. `scripts/test-readers.sh` installs them.

use crate::programs::target_dir;
use crate::sys;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of the clients, or why there is none. If they must be installed
/// (`TPROF_TEST_NEED_READERS`), a missing folder fails the test.
pub fn clients() -> Result<PathBuf, String> {
    Ok(cache("clients")?.join("clients"))
}

/// Returns a Python that finds the clients by `PYTHONPATH`.
pub fn client_python() -> Result<PathBuf, String> {
    Ok(cache("python")?.join("python/bin/python"))
}

/// Returns all runs of a log directory as TensorBoard reads them, or why TensorBoard can't be run. Uses
/// the Python that `TPROF_TEST_TENSORBOARD` names, else the one of the clients.
pub fn tensorboard(logs: &Path) -> Result<Value, String> {
    let python = match std::env::var_os("TPROF_TEST_TENSORBOARD") {
        Some(python) => PathBuf::from(python),
        None => client_python()?,
    };
    let script = "../crates/export/tests/readers/event_files.py";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(python).arg(script).arg(logs).output();
    let output = output.map_err(|error| error.to_string())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// Prints junitparser's view of a file as JSON; exits with 3 if junitparser is not installed.
const READ_JUNIT: &str = r#"
import json, sys
try:
    from junitparser import Failure, JUnitXml, Skipped
except ImportError:
    sys.exit(3)
xml = JUnitXml.fromfile(sys.argv[1])
word = {Failure: "failure", Skipped: "skipped"}
cases = [
    {"name": case.name, "class": case.classname, "out": case.system_out,
     "results": [[word[type(one)], one.message, one.text] for one in case.result]}
    for suite in xml for case in suite
]
stated = [xml.tests, xml.failures, xml.errors, xml.skipped]
runs = {one.name: one.value for suite in xml for one in suite.properties()}
xml.update_statistics()
counted = [xml.tests, xml.failures, xml.errors, xml.skipped]
print(json.dumps({"cases": cases, "stated": stated, "counted": counted, "runs": runs}))
"#;

/// Returns a file of test cases as junitparser reads it, or why junitparser can't be run.
pub fn junit(file: &Path) -> Result<Value, String> {
    let python = client_python()?;
    let output = Command::new(python).args(["-c", READ_JUNIT]).arg(file).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.code() == Some(3) {
        let missing = "junitparser is not there (scripts/test-readers.sh)".to_owned();
        assert!(std::env::var_os("TPROF_TEST_NEED_READERS").is_none(), "{missing}");
        return Err(missing);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// Parses an OTLP request in JSON with OpenTelemetry's own messages, and prints it as they write it;
/// exits with 3 if they are not installed.
const READ_OTLP: &str = r#"
import sys
try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
except ImportError:
    sys.exit(3)
print(json_format.MessageToJson(json_format.Parse(open(sys.argv[1]).read(), ExportMetricsServiceRequest())))
"#;

/// Returns a request of OTLP's metrics as OpenTelemetry's own messages read it, or why these can't be
/// had. Fails if they refuse it.
pub fn otlp_metrics(file: &Path) -> Result<Value, String> {
    let python = client_python()?;
    let output = Command::new(python).args(["-c", READ_OTLP]).arg(file).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.code() == Some(3) {
        let missing = "opentelemetry-proto is not there (scripts/test-readers.sh)".to_owned();
        assert!(std::env::var_os("TPROF_TEST_NEED_READERS").is_none(), "{missing}");
        return Err(missing);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

pub(crate) fn cache(what: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os("TPROF_TEST_READERS").map(PathBuf::from);
    let home = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
    };
    let folder = named.or_else(|| Some(home()?.join("tprof-test-readers"))).unwrap_or_default();
    if folder.join(what).exists() {
        return Ok(folder);
    }
    let missing = format!(
        "{} is not there (scripts/test-readers.sh, scripts/test-cuda.sh)",
        folder.join(what).display()
    );
    assert!(std::env::var_os("TPROF_TEST_NEED_READERS").is_none(), "{missing}");
    Err(missing)
}

/// Builds `programs/nvtx.c` against NVIDIA's own headers.
pub fn with_real_nvtx() -> Result<PathBuf, String> {
    let headers = clients()?.join("nvidia/cu13/include");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/nvtx.c");
    let home = target_dir().join("victims/real-nvtx");
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let lock = File::create(home.join("lock")).map_err(|error| error.to_string())?;
    sys::lock(&lock);
    let (partial, output) = (home.join("partial"), home.join("nvtx"));
    let built = Command::new("gcc")
        .args(["-g", "-O2", "-DREAL_NVTX", "-I"])
        .arg(headers)
        .arg(source)
        .args(["-ldl", "-lpthread", "-o"])
        .arg(&partial)
        .output()
        .map_err(|error| error.to_string())?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::rename(&partial, &output).map_err(|error| error.to_string())?;
    Ok(output)
}
