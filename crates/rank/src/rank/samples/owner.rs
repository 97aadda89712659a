//! Tells who owns a function on a stack, which decides whether the user can change it (see
//! [`tprof_facts::owner`]), and whether the function saves data.

use tprof_facts::owner::Code;

use super::names::{Func, Layer};

/// Functions of libraries that save data, by a part of their file's path.
const SAVING_FILES: [(&str, &[&str]); 7] = [
    ("torch/serialization.py", &["save", "_save", "_legacy_save"]),
    ("torch/distributed/checkpoint/", &["save", "save_state_dict", "_save_state_dict"]),
    ("safetensors/", &["save_file", "save_model"]),
    ("numpy/lib/", &["save", "savez", "savez_compressed", "savetxt", "_savez"]),
    ("joblib/numpy_pickle.py", &["dump"]),
    ("lightning", &["save_checkpoint"]),
    ("transformers/", &["save_pretrained", "_save_checkpoint", "save_model"]),
];
/// The C library's functions that wait until data is on the disk.
const SYNCING: [&str; 6] = ["fsync", "fdatasync", "syncfs", "sync_file_range", "msync", "sync"];
/// Functions of the kernel that write files to storage.
const KERNEL_SYNCING: [&str; 3] = ["vfs_fsync", "do_fsync", "ksys_sync"];

/// Databases that run within the process, by a part of their library's name.
const DATABASES: [&str; 5] = ["sqlite3", "lmdb", "rocksdb", "leveldb", "duckdb"];

/// Whether the name of a user's function, in lower case, says that it saves data.
fn is_saving_name(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    // A function with `checkpoint` in its name may be about activation checkpoints, which are not
    // written to storage. So the name must also have one of these verbs.
    let writes = ["save", "write", "dump", "store"].iter().any(|verb| name.contains(verb));
    name == "save"
        || name.starts_with("save_")
        || name.contains("checkpoint") && writes && !name.contains("restore")
}

/// Python's functions that start processes of `multiprocessing`, with the end of their file's path.
const STARTS: [(&str, &str); 4] = [
    ("multiprocessing/popen_forkserver.py", "_launch"),
    ("multiprocessing/popen_spawn_posix.py", "_launch"),
    ("multiprocessing/forkserver.py", "ensure_running"),
    ("multiprocessing/resource_tracker.py", "ensure_running"),
];

impl Func {
    /// Returns the properties of the function that decide who owns it.
    pub fn code(&self) -> Code<'_> {
        Code { layer: self.layer, file: &self.file, module: &self.module }
    }

    /// Whether the function is of the kernel, the C library or the interpreter.
    pub fn is_system(&self) -> bool {
        self.code().is_system()
    }

    /// Whether the function belongs to Python's import system. Its time counts for the line that
    /// imports.
    pub fn is_import(&self) -> bool {
        self.code().is_import()
    }

    /// Whether the function most likely belongs to the user who runs the job.
    pub fn is_own(&self) -> bool {
        self.code().is_own()
    }

    /// Whether the function is one of Python's `multiprocessing` that starts a process and waits
    /// until that process, or its fork server, has begun.
    pub fn starts_worker(&self) -> bool {
        self.layer == Layer::Python
            && STARTS.iter().any(|(file, function)| {
                self.file.ends_with(file) && self.name.rsplit('.').next() == Some(function)
            })
    }

    /// Whether the function connects the ranks of an MPI job before its work begins (`MPI_Init`,
    /// `MPI_Init_thread`).
    pub fn starts_ranks(&self) -> bool {
        self.layer == Layer::Native
            && (self.name.starts_with("MPI_Init") || self.name.starts_with("PMPI_Init"))
    }

    /// Whether the function belongs to a database that runs within the process.
    pub fn is_of_database(&self) -> bool {
        self.layer == Layer::Native && DATABASES.iter().any(|name| self.module.contains(name))
    }

    /// Whether the function writes a checkpoint or makes a file durable, judged by its name: a
    /// function of PyTorch, safetensors, NumPy, pickle, joblib or the C library, or one of the
    /// user's own.
    pub fn is_save(&self) -> bool {
        let base = self.name.rsplit('.').next().unwrap_or(&self.name);
        match self.layer {
            Layer::Python => {
                let of_library = |(file, functions): &(&str, &[&str])| {
                    self.file.contains(file) && functions.contains(&base)
                };
                SAVING_FILES.iter().any(of_library)
                    || self.is_own() && is_saving_name(&base.to_ascii_lowercase())
            }
            Layer::Native => {
                let plain = base.trim_start_matches('_').trim_start_matches("GI_");
                SYNCING.contains(&plain.trim_start_matches("libc_"))
            }
            Layer::Kernel => KERNEL_SYNCING.iter().any(|start| self.name.starts_with(start)),
        }
    }
}
