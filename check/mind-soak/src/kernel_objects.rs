//! The kernel's eBPF programs and maps, also those whose loader has ended.

/// How many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelObjects {
    /// Loaded programs.
    pub programs: usize,
    /// Maps.
    pub maps: usize,
}

impl KernelObjects {
    /// Now.
    pub fn now() -> Self {
        // One that goes during the listing is not counted.
        let programs = aya::programs::loaded_programs();
        let programs = programs.filter(Result::is_ok).count();
        let maps = aya::maps::loaded_maps().filter(Result::is_ok).count();
        Self { programs, maps }
    }

    /// Whether no more are there than `before`.
    pub fn are_back(&self, before: &Self) -> bool {
        self.programs <= before.programs && self.maps <= before.maps
    }
}
