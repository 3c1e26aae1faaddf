//! A test as the text of a `.litmus` file, which the parser makes the same test of again.

use std::fmt;

use super::{Observable, Test, Thread, Width};

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "X86_64 {}", self.name)?;
        if let Some(description) = &self.description {
            writeln!(f, "\"{description}\"")?;
        }
        for (key, value) in &self.info {
            writeln!(f, "{key}={value}")?;
        }
        let items = self.initial_state();
        if items.is_empty() {
            writeln!(f, "{{ }}")?;
        } else {
            writeln!(f, "{{\n{}\n}}", items.join(" "))?;
        }
        self.program(f)?;
        writeln!(f, "{}", self.condition)
    }
}

impl Test {
    /// The items between the braces. What is observed has a type, which is what makes it observed.
    fn initial_state(&self) -> Vec<String> {
        let set = |value: u64| match value {
            0 => String::new(),
            value => format!("={value}"),
        };
        let mut items = Vec::new();
        for (location, cell) in &self.memory {
            let observable = Observable::Memory(location.clone());
            if self.observed.binary_search(&observable).is_ok() {
                let kind = match cell.width {
                    Width::Long => "uint32_t",
                    Width::Quad => "uint64_t",
                };
                items.push(format!("{kind} {location}{};", set(cell.initial)));
            } else if cell.initial != 0 {
                items.push(format!("{location}={};", cell.initial));
            }
        }
        let initial = |thread: usize, register| {
            let Thread { initial, .. } = &self.threads[thread];
            set(initial.get(&register).copied().unwrap_or(0))
        };
        for observable in &self.observed {
            if let Observable::Register { thread, register } = observable {
                let set = initial(*thread, *register);
                items.push(format!("uint64_t {observable}{set};"));
            }
        }
        for (number, thread) in self.threads.iter().enumerate() {
            for register in thread.initial.keys().copied() {
                let thread = number;
                let observable = Observable::Register { thread, register };
                if self.observed.binary_search(&observable).is_err() {
                    items.push(format!("{observable}{};", initial(number, register)));
                }
            }
        }
        items
    }

    /// The table of instructions, a column for each thread.
    fn program(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |(number, thread): (usize, &Thread)| {
            let instructions = thread.instructions.iter().map(ToString::to_string);
            let cells: Vec<String> = [format!("P{number}")]
                .into_iter()
                .chain(instructions)
                .collect();
            let width = cells.iter().map(String::len).max().unwrap_or(0);
            (width, cells)
        };
        let columns: Vec<_> = self.threads.iter().enumerate().map(column).collect();
        let rows = columns
            .iter()
            .map(|(_, cells)| cells.len())
            .max()
            .unwrap_or(0);
        for row in 0..rows {
            for (number, (width, cells)) in columns.iter().enumerate() {
                let line = if number > 0 { "|" } else { "" };
                let cell = cells.get(row).map_or("", String::as_str);
                write!(f, "{line} {cell:width$} ")?;
            }
            writeln!(f, ";")?;
        }
        Ok(())
    }
}
