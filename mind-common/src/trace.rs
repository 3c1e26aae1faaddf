//! What the switch's program records of each packet while packets are traced: the record, which packets are selected,
//! and how a directory word is printed.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    addr::Va,
    directory::{Prior, State, Word},
    id::{BladeId, BladeSet, Connection},
    verdict::Verdict,
    wire::Opcode,
};

/// Bit of [`Record::known`]: the frame has a BTH; opcode, qp and psn are those with which it came
/// in.
pub const KNOWS_BTH: u32 = 1 << 0;
/// Bit of [`Record::known`]: it names an address, `va`.
pub const KNOWS_VA: u32 = 1 << 1;
/// Bit of [`Record::known`]: it read or changed a directory word, `before`.
pub const KNOWS_WORD: u32 = 1 << 2;

/// What became of one packet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Record {
    /// When it came in, in nanoseconds of the monotonic clock.
    pub when: u64,
    /// The address it names, as it came in.
    pub va: u64,
    /// The directory word that it found.
    pub before: u64,
    /// The word that it left; the same where it changed nothing.
    pub after: u64,
    /// The interface it came in at.
    pub ifindex: u32,
    /// Its destination queue pair.
    pub qp: u32,
    /// Its packet sequence number.
    pub psn: u32,
    /// Its opcode.
    pub opcode: u32,
    /// The verdict's number.
    pub verdict: u32,
    /// [`KNOWS_BTH`], [`KNOWS_VA`], [`KNOWS_WORD`]: which fields are set.
    pub known: u32,
}

/// Which packets are traced. All zeros: none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Tracing {
    /// The first address.
    pub first: u64,
    /// The last address.
    pub last: u64,
    /// 1 while packets are traced.
    pub on: u32,
    /// [`EVERY_BLADE`], or the number of a compute blade.
    pub blade: u32,
}

/// [`Tracing::blade`] where packets of all blades are traced.
pub const EVERY_BLADE: u32 = u32::MAX;

impl Tracing {
    /// Every packet.
    pub const EVERYTHING: Self = Self {
        first: 0,
        last: u64::MAX,
        on: 1,
        blade: EVERY_BLADE,
    };

    /// Whether a packet is traced. With a range of addresses, it is if the packet names one of them; with a blade, if
    /// it is of that blade's connection, which includes memory's answers to it.
    #[inline(always)]
    pub const fn wants(&self, record: &Record) -> bool {
        let any_va = self.first == 0 && self.last == u64::MAX;
        let names_one =
            record.known & KNOWS_VA != 0 && record.va >= self.first && record.va <= self.last;
        let is_its =
            record.known & KNOWS_BTH != 0 && record.qp & BLADE_OF_QP == self.blade & BLADE_OF_QP;
        self.on != 0 && (any_va || names_one) && (self.blade == EVERY_BLADE || is_its)
    }
}

impl Tracing {
    /// The narrowest selection that includes all packets of both.
    pub fn either(self, other: Self) -> Self {
        match (self.on, other.on) {
            (0, _) => other,
            (_, 0) => self,
            _ => Self {
                first: self.first.min(other.first),
                last: self.last.max(other.last),
                on: 1,
                blade: match self.blade == other.blade {
                    true => self.blade,
                    false => EVERY_BLADE,
                },
            },
        }
    }
}

/// The bits of a queue pair's number that name the blade: see [`Connection::to_qp`].
const BLADE_OF_QP: u32 = 0xff;

impl Record {
    /// The opcode; `None` if the frame has no BTH, or one that is none of ours.
    pub fn opcode(&self) -> Option<Opcode> {
        let number = u8::try_from(self.opcode).ok()?;
        Opcode::from_u8(number).filter(|_| self.known & KNOWS_BTH != 0)
    }

    /// The compute blade of its connection.
    pub fn blade(&self) -> Option<BladeId> {
        let connection = Connection::from_qp(self.qp)?;
        (self.known & KNOWS_BTH != 0).then_some(connection.blade)
    }

    /// The address.
    pub fn va(&self) -> Option<Va> {
        (self.known & KNOWS_VA != 0).then_some(Va(self.va))
    }

    /// The directory word before and after.
    pub fn words(&self) -> Option<(Word, Word)> {
        let words = (Word::from_raw(self.before), Word::from_raw(self.after));
        (self.known & KNOWS_WORD != 0).then_some(words)
    }

    /// The verdict; `None` if it is a number that only a program of another version counts.
    pub fn verdict(&self) -> Option<Verdict> {
        Verdict::from_number(self.verdict as usize)
    }
}

/// A directory word in one line: `S{c0,c1}`, `SM{c1} for c0` while c0 waits for c1, `L{c0} was M` while locked; and a
/// function that names blades.
#[derive(Clone, Copy, Debug)]
pub struct Shown<F>(pub Word, pub F);

impl<N: fmt::Display, F: Fn(BladeId) -> N> fmt::Display for Shown<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.0;
        f.write_str(match word.state() {
            State::Free => "-",
            State::Invalid => "I",
            State::Shared => "S",
            State::Modified => "M",
            State::SharedToModified => "SM",
            State::ModifiedToShared => "MS",
            State::ModifiedToModified => "MM",
            State::Locked => "L",
        })?;
        if word.blades() != BladeSet::EMPTY {
            f.write_str("{")?;
            for (place, blade) in word.blades().iter().enumerate() {
                let comma = if place == 0 { "" } else { "," };
                write!(f, "{comma}{}", (self.1)(blade))?;
            }
            f.write_str("}")?;
        }
        if word.state().is_busy() {
            write!(f, " for {}", (self.1)(word.requester()))?;
        }
        match word.prior() {
            None => Ok(()),
            Some(Prior::Invalid) => f.write_str(" was I"),
            Some(Prior::Shared) => f.write_str(" was S"),
            Some(Prior::Modified) => f.write_str(" was M"),
            Some(Prior::Lost) => f.write_str(" was lost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;
    use crate::serial::Episode;

    fn blade(number: u8) -> BladeId {
        BladeId::new(number).expect("there are 32 blades")
    }

    fn record(number: u8, va: u64) -> Record {
        let connection = Connection {
            blade: blade(number),
            incarnation: 0x1234,
        };
        Record {
            va,
            qp: connection.to_qp(),
            opcode: Opcode::Acquire as u32,
            known: KNOWS_BTH | KNOWS_VA,
            ..Record::default()
        }
    }

    #[test]
    fn a_word_reads_as_the_paper_writes_it() {
        let both: BladeSet = [blade(0), blade(1)].into_iter().collect();
        let other = BladeSet::only(blade(1));
        let start = Word::default();
        let cases = [
            (start, "-"),
            (start.settled(State::Invalid, BladeSet::EMPTY), "I"),
            (start.settled(State::Shared, both), "S{c0,c1}"),
            (start.settled(State::Modified, other), "M{c1}"),
            (
                start.busy(State::SharedToModified, blade(0), other),
                "SM{c1} for c0",
            ),
            (
                start.busy(State::ModifiedToShared, blade(0), other),
                "MS{c1} for c0",
            ),
            (
                start.busy(State::ModifiedToModified, blade(3), other),
                "MM{c1} for c3",
            ),
            (start.locked(Prior::Invalid, BladeSet::EMPTY), "L was I"),
            (start.locked(Prior::Shared, both), "L{c0,c1} was S"),
            (start.locked(Prior::Modified, other), "L{c1} was M"),
            (start.locked(Prior::Lost, BladeSet::EMPTY), "L was lost"),
        ];
        for (word, text) in cases {
            assert_eq!(Shown(word, |blade| blade).to_string(), text);
            // The episode is in the word, and not what a reader looks for.
            let later = word.with_episode(Episode::new(77));
            assert_eq!(Shown(later, |blade| blade).to_string(), text);
        }
    }

    #[test]
    fn a_word_says_blades_as_its_reader_calls_them() {
        let both: BladeSet = [blade(0), blade(1)].into_iter().collect();
        let word = Word::default().busy(State::SharedToModified, blade(2), both);
        let name = |blade: BladeId| ["left", "right", "middle"][usize::from(blade.get())];
        assert_eq!(Shown(word, name).to_string(), "SM{left,right} for middle");
    }

    #[test]
    fn nobody_wants_a_record_of_anything_until_told() {
        let none = Tracing::default();
        assert!(!none.wants(&record(0, 0)));
        assert!(!none.wants(&Record::default()));
        assert!(Tracing::EVERYTHING.wants(&Record::default()));
        assert!(Tracing::EVERYTHING.wants(&record(31, u64::MAX)));
    }

    #[test]
    fn a_blade_is_asked_for_by_its_connection() {
        let tracing = Tracing {
            blade: 3,
            ..Tracing::EVERYTHING
        };
        assert!(tracing.wants(&record(3, 0x1000)));
        assert!(!tracing.wants(&record(2, 0x1000)));
        // A frame without a BTH has no connection, whatever the field says.
        let foreign = Record {
            known: 0,
            ..record(3, 0x1000)
        };
        assert!(!tracing.wants(&foreign));
    }

    #[test]
    fn a_range_has_its_first_and_its_last_address() {
        let tracing = Tracing {
            first: 0x1000,
            last: 0x1fff,
            ..Tracing::EVERYTHING
        };
        for (va, wanted) in [
            (0xfff, false),
            (0x1000, true),
            (0x1fff, true),
            (0x2000, false),
        ] {
            assert_eq!(tracing.wants(&record(0, va)), wanted, "{va:#x}");
        }
        let without = Record {
            known: KNOWS_BTH,
            ..record(0, 0x1000)
        };
        assert!(!tracing.wants(&without));
    }

    #[test]
    fn what_one_of_two_wants_both_want_together() {
        let some = [
            Tracing::default(),
            Tracing::EVERYTHING,
            Tracing {
                blade: 3,
                ..Tracing::EVERYTHING
            },
            Tracing {
                first: 0x1000,
                last: 0x1fff,
                blade: 2,
                on: 1,
            },
            Tracing {
                first: 0x4000,
                last: 0x4fff,
                blade: 3,
                on: 1,
            },
        ];
        let mut records = std::vec![Record::default()];
        for va in [0, 0x1000, 0x2000, 0x4000] {
            records.extend([record(2, va), record(3, va)]);
        }
        for (one, other) in some.iter().flat_map(|one| some.map(|other| (one, other))) {
            let both = one.either(other);
            for record in &records {
                let wanted = one.wants(record) || other.wants(record);
                assert!(
                    !wanted || both.wants(record),
                    "{one:?} {other:?} {record:?}"
                );
            }
        }
        assert_eq!(some[0].either(some[3]), some[3]);
        assert_eq!(some[2].either(some[4]).blade, 3);
    }

    #[test]
    fn a_field_that_is_not_known_says_nothing() {
        let all = Record {
            known: KNOWS_BTH | KNOWS_VA | KNOWS_WORD,
            ..record(5, 0x1000)
        };
        assert_eq!(all.opcode(), Some(Opcode::Acquire));
        assert_eq!(all.blade(), Some(blade(5)));
        assert_eq!(all.va(), Some(Va(0x1000)));
        assert_eq!(all.words(), Some((Word::default(), Word::default())));
        let none = Record { known: 0, ..all };
        assert_eq!(none.opcode(), None);
        assert_eq!(none.blade(), None);
        assert_eq!(none.va(), None);
        assert_eq!(none.words(), None);
        let strange = Record {
            opcode: 0x1c0,
            verdict: u32::MAX,
            ..all
        };
        assert_eq!((strange.opcode(), strange.verdict()), (None, None));
    }
}
