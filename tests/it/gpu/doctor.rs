//! Tests of the lines of `tprof doctor` about GPUs.

use super::*;

/// Returns a check of `tprof doctor --json` by its name.
fn check<'d>(doctor: &'d Value, part: &str, name: &str) -> Option<&'d Value> {
    doctor[part].as_array()?.iter().find(|check| check["name"] == name)
}

/// Makes a wheel of CUPTI with this version, installed as pip does.
fn wheel(scratch: &Scratch, version: &str) -> PathBuf {
    let packages = scratch.join(version);
    let library = packages.join("nvidia/cu13/lib/libcupti.so.13");
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    std::fs::write(&library, "").unwrap();
    let about = format!("nvidia_cuda_cupti-{version}.dist-info");
    std::fs::create_dir_all(packages.join(about)).unwrap();
    library
}

#[test]
fn the_doctor_names_versions_of_cupti_with_known_faults() {
    let home = need_some!(stand_ins());
    let scratch = Scratch::new();
    for (version, release) in [
        ("13.0.48", Some("CUPTI 13.0 (")),
        ("13.4.58", Some("CUPTI 13.4 (")),
        ("13.4.92", None),
        ("13.5.25", None),
    ] {
        let job = tprof(["doctor", "--json"])
            .env("LD_LIBRARY_PATH", home.join("13"))
            .env("TPROF_CUPTI", wheel(&scratch, version));
        let found: Value = serde_json::from_str(&job.run_in(scratch.cwd()).stdout).unwrap();
        let fault = check(&found, "machine", "cupti faults");
        let named = fault.map(|fault| fault["found"].as_str().unwrap());
        match release {
            Some(release) => assert!(named.unwrap().starts_with(release), "{version}: {named:?}"),
            None => assert_eq!(named, None, "{version}"),
        }
    }
}

#[test]
fn a_run_names_known_faults_of_the_cupti_that_it_uses() {
    for (version, fault) in [
        ("130000", Some("CUPTI 13.0: a flush may crash")),
        ("130300", Some("CUPTI 13.3: its CPU time grows")),
        ("130401", None),
    ] {
        let (_scratch, ran) = need_some!(ran(13, &["2"], &[("FAKE_CUPTI_VERSION", version)]));
        let marks = ran.file.marks().iter().map(|mark| ran.file.name(mark.name));
        let named: Vec<&str> = marks.filter(|name| name.starts_with("CUPTI 13.")).collect();
        assert_eq!(named.len(), usize::from(fault.is_some()), "{version}: {named:?}");
        assert!(fault.is_none_or(|fault| named[0].starts_with(fault)), "{named:?}");
    }
}

#[test]
fn the_doctor_prints_which_gpu_events_can_be_recorded() {
    let home = need_some!(stand_ins());
    let scratch = Scratch::new();
    let doctor = |words: &[&Path], env: &[(&str, &Path)]| -> Value {
        let mut job = tprof(["doctor", "--json"]);
        if !words.is_empty() {
            job = job.arg("--").args(words);
        }
        for (name, value) in env {
            job = job.env(name, value);
        }
        serde_json::from_str(&job.run_in(scratch.cwd()).stdout).unwrap()
    };
    let stand_ins = home.join("12");
    let path = ("LD_LIBRARY_PATH", stand_ins.as_path());
    let found = doctor(&[], &[path]);
    let driver = check(&found, "machine", "gpu driver").unwrap();
    assert_eq!(driver["verdict"], "ok");
    assert!(driver["found"].as_str().unwrap().contains("for CUDA 13.5 and older"), "{driver}");
    let cupti = check(&found, "machine", "cupti").unwrap();
    assert!(cupti["found"].as_str().unwrap().contains("12/libcupti.so.12"), "{cupti}");
    assert_eq!(check(&found, "machine", "nvtx").unwrap()["verdict"], "ok");

    let absent = Path::new("/opt/tool/libtool.so");
    let found = doctor(&[], &[path, ("NVTX_INJECTION64_PATH", absent)]);
    let nvtx = check(&found, "machine", "nvtx").unwrap();
    assert_eq!(nvtx["verdict"], "part", "{nvtx}");
    assert!(
        nvtx["found"].as_str().unwrap().contains("libtool.so, which is not a library"),
        "{nvtx}"
    );

    let tool = stand_ins.join("libnccl.so.2");
    let tool = tool.as_path();
    let found = doctor(
        &[],
        &[
            path,
            ("NVTX_INJECTION64_PATH", tool),
            ("INTEL_LIBITTNOTIFY64", tool),
            ("CUDA_INJECTION64_PATH", tool),
            ("TPROF_CUPTI", absent),
        ],
    );
    for (name, named) in [
        ("nvtx", "12/libnccl.so.2, which keeps"),
        ("itt", "12/libnccl.so.2, which keeps"),
        ("cuda tool", "12/libnccl.so.2, which is loaded first"),
        ("cupti", "/opt/tool/libtool.so"),
    ] {
        let check = check(&found, "machine", name).unwrap();
        assert_eq!(check["verdict"], "part", "{check}");
        assert!(check["found"].as_str().unwrap().contains(named), "{check}");
    }

    let dynamic = doctor(&[&home.join("train-12")], &[path]);
    let cuda = check(&dynamic, "command", "cuda").unwrap();
    assert!(cuda["found"].as_str().unwrap().starts_with("libcudart.so.12"), "{cuda}");
    let source = scratch.join("linked.c");
    let text =
        "__attribute__((section(\".nv_fatbin\"))) int kernels[4];\nint main(void) { return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let linked = scratch.join("linked");
    let built = Job::new("gcc").arg("-o").arg(&linked).arg(&source).run_in(scratch.path());
    assert_eq!(built.code, Some(0), "{built:?}");
    let cuda = doctor(&[&linked], &[path]);
    let cuda = check(&cuda, "command", "cuda").unwrap();
    assert!(cuda["found"].as_str().unwrap().contains("static CUDA runtime"), "{cuda}");
}

#[test]
fn the_doctor_names_a_profiler_plugin_of_nccls_that_is_the_jobs_own() {
    let found = |variable: &str, value: &Path| {
        let scratch = Scratch::new();
        let job = tprof(["doctor", "--json"]).env(variable, value);
        let found: Value = serde_json::from_str(&job.run_in(scratch.cwd()).stdout).unwrap();
        let plugin = check(&found, "machine", "nccl plugin")?;
        Some((plugin["verdict"].clone(), plugin["found"].as_str().unwrap().to_owned()))
    };
    let scratch = Scratch::new();
    assert_eq!(found("LD_LIBRARY_PATH", scratch.path()), None);
    let (verdict, text) = found("NCCL_PROFILER_PLUGIN", Path::new("inspector")).unwrap();
    assert_eq!(verdict, "part");
    assert!(text.starts_with("NCCL_PROFILER_PLUGIN names inspector, which gets"), "{text}");
    let absent = scratch.join("absent.so");
    let (_, text) = found("NCCL_PROFILER_PLUGIN", &absent).unwrap();
    assert!(text.ends_with("absent.so, which is not a library"), "{text}");
    // The loader finds this one by its default name, because no variable names a plugin.
    std::fs::write(scratch.join("libnccl-profiler.so"), "\x7fELF").unwrap();
    let (_, text) = found("LD_LIBRARY_PATH", scratch.path()).unwrap();
    assert!(text.contains("libnccl-profiler.so, which gets NCCL's events"), "{text}");
}
