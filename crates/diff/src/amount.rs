//! Defines an amount of time or bytes under a name: summed over ranks, with the variance of the
//! sum.

/// The 95 % interval of a normal variable reaches this many standard deviations to each side.
pub(super) const Z: f64 = 1.96;

/// The kinds of names by which the hosts of two sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostNameKind {
    /// CPU time of functions, inlined ones among them.
    Function,
    /// CPU time of Python functions, including the native code that they call.
    Python,
    /// CPU time of the files with the code.
    Module,
    /// Time off a core, by cause.
    Wait,
    /// Threads by program and name: how many, and how long they ran.
    Thread,
    /// Bytes that a host stack allocated.
    Site,
    /// Wall time of the driving threads, by part.
    Part,
    /// Wall time of the driving threads, by part and function.
    Cause,
    /// Wall time of the driving threads, by part and line.
    CauseLine,
    /// Time of devices in the compared steps, by part and cause.
    Device,
}

impl HostNameKind {
    /// Whether this kind divides the wall time of driving threads.
    pub fn is_of_drivers(self) -> bool {
        matches!(self, HostNameKind::Part | HostNameKind::Cause | HostNameKind::CauseLine)
    }
}

/// Time or bytes under one name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// Nanoseconds, or bytes of a site.
    pub value: f64,
    /// Variance of the value. A value that is a sum of samples has a sampling error.
    pub variance: f64,
    /// Number of samples, waits, threads or allocations.
    pub count: f64,
    /// Sum of the squares of each rank's value, from which the spread over ranks is computed.
    pub squares: f64,
}

impl Amount {
    /// Adds another amount, of the same rank or of another one.
    pub(super) fn add(&mut self, other: Amount) {
        self.value += other.value;
        self.variance += other.variance;
        self.count += other.count;
        self.squares += other.squares;
    }

    /// Returns the mean over this many ranks or steps. `squares` isn't divided, because the spread
    /// is computed from the values of whole ranks.
    pub(super) fn divided_by(self, by: f64) -> Amount {
        let Amount { value, variance, count, squares } = self;
        Amount { value: value / by, variance: variance / (by * by), count: count / by, squares }
    }

    /// Half the width of the 95 % interval.
    pub fn error(&self) -> f64 {
        Z * self.variance.sqrt()
    }
}
