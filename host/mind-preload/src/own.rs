//! Whether the calling thread is in this library's own code: what the C library allocates meanwhile (for a thread that
//! is started, say) must not come from the window, since the thread may be about to map more of it.

use std::cell::Cell;

thread_local! {
    // Neither allocates nor is dropped.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether it is.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs `work` as this library's own code.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _before = Before(INSIDE.replace(true));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_outermost() {
        assert!(!is_inside());
        inside(|| {
            inside(|| assert!(is_inside()));
            assert!(is_inside());
        });
        assert!(!is_inside());
    }
}
