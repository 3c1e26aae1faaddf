//! Limits that the system sets to a process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Lets this process have as many descriptors open as it may at most, and returns how many that is: what a shell or a
/// service manager gives at first is for programs that use `select(2)`.
pub fn raise_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It is no more than what is allowed anyway.
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open descriptors cannot be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_allowed_is_taken() {
        let raised = raise_descriptors();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(limit.maximum.unwrap_or(u64::MAX), raised);
    }
}
