//! Recognizes the functions whose variables lead to the name of the thread that runs them.

/// How the variables of a function lead to the name of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamingFunction {
    /// The function's first variable is a `Thread` or a `Process`.
    Owner,
    /// The function's variable `worker_id` is the number of a worker of PyTorch's `DataLoader`.
    Loader,
}

impl NamingFunction {
    /// Recognizes such a function by its name and its file.
    pub fn of(function: &str, file: &str) -> Option<NamingFunction> {
        let begins = function.strip_suffix("_bootstrap");
        match begins {
            Some("" | "Thread.") if file.ends_with("/threading.py") => Some(NamingFunction::Owner),
            Some("" | "BaseProcess.") if file.ends_with("/process.py") => {
                Some(NamingFunction::Owner)
            }
            None if function == "_worker_loop"
                && file.ends_with("torch/utils/data/_utils/worker.py") =>
            {
                Some(NamingFunction::Loader)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naming_functions_are_recognized_by_name_and_file() {
        let by = |function, file| NamingFunction::of(function, file);
        let threading = "/usr/lib/python3.11/threading.py";
        let process = "/usr/lib/python3.8/multiprocessing/process.py";
        let worker = "/venv/lib/torch/utils/data/_utils/worker.py";
        assert_eq!(by("Thread._bootstrap", threading), Some(NamingFunction::Owner));
        assert_eq!(by("_bootstrap", process), Some(NamingFunction::Owner));
        assert_eq!(by("BaseProcess._bootstrap", process), Some(NamingFunction::Owner));
        assert_eq!(by("_worker_loop", worker), Some(NamingFunction::Loader));
        assert_eq!(by("Thread._bootstrap_inner", threading), None);
        assert_eq!(by("_bootstrap", "/job/threads.py"), None);
        assert_eq!(by("_worker_loop", "/job/worker.py"), None);
    }
}
