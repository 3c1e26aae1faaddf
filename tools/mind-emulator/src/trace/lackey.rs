//! What Valgrind's lackey writes with `--trace-mem=yes`: a line for each instruction and access.
//!
//! ```text
//! I  04001000,3      an instruction
//!  L 1ffeffe7e,8     a load: address, bytes
//!  S 1ffeffe80,8     a store
//!  M 0421c7cc,4      a load and a store
//! ==1234== ...       Valgrind's own; skipped, also with -- for ==
//! ```

use std::io::BufRead;

use super::Error;

/// Bytes of the longest line: Valgrind's own have the program's command line.
const LONGEST: u64 = 1 << 20;
/// Bits of an address.
const ADDRESS_BITS: u32 = 48;
/// Bytes of the largest access: what XSAVE stores is below it.
const LARGEST: u64 = 1 << 14;

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// An instruction.
    Instruction,
    /// Memory is accessed.
    Data {
        /// The first byte's address.
        address: u64,
        /// How many bytes; at least 1.
        bytes: u64,
        /// Whether it is stored to.
        is_write: bool,
    },
}

/// The lines of a trace. Ends after the first error.
#[derive(Debug)]
pub struct Lines<R> {
    text: R,
    line: Vec<u8>,
    number: u64,
    offset: u64,
    is_over: bool,
}

impl<R: BufRead> Lines<R> {
    /// The lines of that text.
    pub const fn new(text: R) -> Self {
        Self {
            text,
            line: Vec::new(),
            number: 0,
            offset: 0,
            is_over: false,
        }
    }

    /// Reads the next line; whether there was one.
    fn read(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let mut limited = std::io::Read::take(&mut self.text, LONGEST);
        let read = limited.read_until(b'\n', &mut self.line);
        let offset = self.offset;
        let read = read.map_err(|source| Error::Read { offset, source })?;
        self.offset += read as u64;
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read as u64 == LONGEST {
            return Err(self.wrong("it is longer than 1 MiB"));
        }
        Ok(read > 0)
    }

    const fn wrong(&self, what: &'static str) -> Error {
        Error::Line {
            line: self.number,
            what,
        }
    }

    fn next_line(&mut self) -> Result<Option<Line>, Error> {
        while self.read()? {
            if !is_valgrinds(&self.line) {
                return parse(&self.line).map(Some).map_err(|what| self.wrong(what));
            }
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.next_line().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Whether the line begins with the number of a process between two equal or two minus signs.
fn is_valgrinds(line: &[u8]) -> bool {
    [&b"=="[..], b"--"].into_iter().any(|sign| {
        let Some(rest) = line.strip_prefix(sign) else {
            return false;
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && rest[digits..].starts_with(sign)
    })
}

fn parse(line: &[u8]) -> Result<Line, &'static str> {
    const EXPECTED: &str = "expected `I  ADDRESS,SIZE`, ` L ADDRESS,SIZE`, ` S` or ` M`, as \
        `valgrind --tool=lackey --trace-mem=yes` writes them on stderr; the program's own output must go elsewhere";
    let (kind, rest) = line.split_at_checked(3).ok_or(EXPECTED)?;
    let text = str::from_utf8(rest).map_err(|_| EXPECTED)?;
    let (address, bytes) = text.split_once(',').ok_or(EXPECTED)?;
    // `from_str_radix` takes a sign, which lackey does not write.
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_plain(address) || !is_plain(bytes) {
        return Err(EXPECTED);
    }
    let address = u64::from_str_radix(address, 16)
        .map_err(|_| "the address is no hexadecimal number of 64 bits")?;
    let bytes: u64 = bytes.parse().map_err(|_| "the size is no decimal number")?;
    if !(1..=LARGEST).contains(&bytes) {
        return Err("the size is not one of an access: 1 to 16,384 bytes");
    }
    if address
        .checked_add(bytes)
        .is_none_or(|end| end > 1 << ADDRESS_BITS)
    {
        return Err("the address is not one of a program: beyond 48 bits");
    }
    match kind {
        b"I  " => Ok(Line::Instruction),
        b" L " => Ok(Line::Data {
            address,
            bytes,
            is_write: false,
        }),
        b" S " | b" M " => Ok(Line::Data {
            address,
            bytes,
            is_write: true,
        }),
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &str) -> Result<Vec<Line>, String> {
        let lines = Lines::new(text.as_bytes());
        lines
            .map(|line| line.map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn lines_are_what_they_say() {
        let text = "==3094== Lackey, an example Valgrind tool\n--3094-- WARNING: something\n\
            I  0401ab70,3\n S 1fff000778,8\n L 04a18de0,32\n M 0421c7cc,4\n==3094== Exit code:       0";
        let data = |address, bytes, is_write| Line::Data {
            address,
            bytes,
            is_write,
        };
        let expected = [
            Line::Instruction,
            data(0x1f_ff00_0778, 8, true),
            data(0x04a1_8de0, 32, false),
            data(0x0421_c7cc, 4, true),
        ];
        assert_eq!(lines(text), Ok(expected.to_vec()));
        assert_eq!(lines(""), Ok(vec![]));
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        for wrong in [
            "hello",
            "",
            " L 1000",
            " L 1000,0",
            " L 1000,x",
            " L 1000,+4",
            " L +1000,4",
            " L 1000,99999",
            " L xyz,4",
            " X 1000,4",
            "L 1000,4",
            " L 11112222333344445,4",
            " L fffffffffffffff8,8",
            " L 1000,4 ",
            "== 12== x",
            "==12 x",
            " L 1000,4\u{e9}",
        ] {
            let error = lines(&format!("I  1000,1\n{wrong}\nI  1000,1\n")).unwrap_err();
            assert!(error.starts_with("line 2: "), "{wrong}: {error}");
        }
    }

    #[test]
    fn nothing_comes_after_an_error() {
        let mut lines = Lines::new(&b"x\nI  1000,1\n"[..]);
        assert!(lines.next().is_some_and(|line| line.is_err()));
        assert!(lines.next().is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end_or_refused(text in "([ ILSM=\\-0-9a-f,\n]{0,40}|\\PC{0,20})*") {
            let lines = Lines::new(text.as_bytes());
            prop_assert!(lines.count() <= text.len() + 1);
        }
    }
}
