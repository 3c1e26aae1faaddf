//! Plans as text.

use std::fmt;

use super::{Area, Change, DRAWN_WORDS, Disturbance, Image, Mapping, Moment, Op, Place, Plan};

/// The words of a page that are printed: those that plans use, and the following ones up to the
/// last that is not zero.
pub(crate) fn words(image: &Image) -> &[u64] {
    let used = image.iter().rposition(|word| *word != 0);
    let count = used.map_or(0, |last| last + 1);
    &image[..count.max(DRAWN_WORDS)]
}

/// Nanoseconds as microseconds.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} µs", self.0 / 1_000, self.0 % 1_000)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a{}/{}[{}]", self.area, self.page, self.word)
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Map => "map",
            Self::Unmap => "unmap",
            Self::MakeReadOnly => "make read-only",
            Self::MakeWritable => "make writable",
        })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(place) => write!(f, "load {place}"),
            Self::Store(place) => write!(f, "store {place}"),
            Self::Exchange(place) => write!(f, "exchange {place}"),
            Self::Sync(area) => write!(f, "sync a{area}"),
            Self::Mapping(mapping, area) => write!(f, "{mapping} a{area}"),
            Self::Until(at) => write!(f, "wait until {}", Micros(*at)),
        }
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages of domain {}", self.pages(), self.domain)?;
        let sent = [
            (!self.is_writable, "read-only"),
            (!self.is_mapped, "not mapped at first"),
            (self.is_named, "named"),
        ];
        let mut sent = sent.iter().filter(|(is_so, _)| *is_so);
        sent.try_for_each(|(_, what)| write!(f, ", {what}"))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outputs(outputs) => write!(f, "after {outputs} outputs"),
            Self::Answers(answers) => write!(f, "with an answer, after {answers} others"),
            Self::Phase(phase) => write!(f, "while an operation waits in phase {phase:?}"),
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Change(Change::Reset, area, page) => {
                write!(f, "the region of a{area}/{page} is reset")
            }
            Self::Change(Change::Split, area, page) => {
                write!(f, "the region of a{area}/{page} is split")
            }
            Self::Change(Change::Merge, area, page) => {
                write!(f, "the region of a{area}/{page} is merged")
            }
            Self::Mapping(mapping, area) => write!(f, "{mapping} a{area}"),
            Self::ControllerDies { moment, back, late } => {
                let back = Micros(back);
                write!(
                    f,
                    "the controller dies {moment}, another one takes over {back} later"
                )?;
                late.map_or(Ok(()), |blade| write!(f, ", {blade} comes back too late"))
            }
            Self::MemoryCrash {
                memory,
                noticed,
                back,
            } => {
                let (noticed, back) = (Micros(noticed), Micros(back));
                write!(
                    f,
                    "m{memory} crashes, noticed after {noticed}, back and empty after {back}"
                )
            }
            Self::Unzeroed { memory, lasts } => {
                write!(f, "m{memory} cannot zero for {}", Micros(lasts))
            }
            Self::Unable { blade, lasts } => {
                write!(
                    f,
                    "the agent of {blade} can do nothing for {}",
                    Micros(lasts)
                )
            }
            Self::Counts => write!(f, "an operator asks what blades count"),
            Self::OperatorsLeave => write!(f, "all operators leave"),
            Self::WithoutTc { blade, lasts } => {
                write!(f, "no TC for {blade} for {}", Micros(lasts))
            }
            Self::LinkDown { node, lasts } => {
                write!(f, "{node} has no link for {}", Micros(lasts))
            }
            Self::Hang { blade, lasts } => write!(f, "{blade} hangs for {}", Micros(lasts)),
            Self::Exit {
                blade,
                domain,
                threads,
                back,
            } => {
                let back = Micros(back);
                let count = match threads {
                    usize::MAX => "all".to_owned(),
                    count => count.to_string(),
                };
                write!(
                    f,
                    "{count} threads of domain {domain} on {blade} fail, back after {back}"
                )
            }
            Self::Disconnect {
                blade,
                noticed,
                found,
            } => {
                let (noticed, found) = (Micros(noticed), Micros(found));
                write!(
                    f,
                    "{blade} loses the controller, which notices after {noticed}, {blade} after {found}"
                )
            }
            Self::Crash {
                blade,
                noticed,
                back,
            } => {
                let (noticed, back) = (Micros(noticed), Micros(back));
                write!(
                    f,
                    "{blade} crashes, noticed after {noticed}, back after {back}"
                )
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            blades,
            memories,
            capacity,
            pace,
            load,
            network_faults,
            ..
        } = self;
        let pace = Micros(*pace);
        writeln!(
            f,
            "seed {seed}; {blades} compute blades, {memories} memory blades, {capacity} pages a cache; pace {pace}"
        )?;
        writeln!(f, "{load:?}\n{network_faults:?}")?;
        if let Some(epoch) = self.epoch {
            writeln!(f, "regions are split and merged every {}", Micros(epoch))?;
        }
        for (number, on_loss) in self.domains.iter().enumerate() {
            writeln!(f, "domain {number}: {on_loss:?}")?;
        }
        for (number, area) in self.areas.iter().enumerate() {
            writeln!(f, "a{number}: {area}")?;
        }
        for (number, program) in self.programs.iter().enumerate() {
            let ops: Vec<_> = program.ops.iter().map(ToString::to_string).collect();
            let (blade, domain) = (program.blade, program.domain);
            writeln!(
                f,
                "t{number} on {blade} in domain {domain}: {}",
                ops.join(", ")
            )?;
        }
        for (at, disturbance) in &self.disturbances {
            writeln!(f, "{}: {disturbance}", Micros(*at))?;
        }
        for trigger in &self.triggers {
            writeln!(f, "{trigger:?}")?;
        }
        match self.flaw {
            Some(flaw) => writeln!(f, "broken: {flaw:?}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_words_are_not_shown() {
        let mut image = Image::default();
        assert_eq!(words(&image), [0; DRAWN_WORDS]);
        image[1] = 7;
        assert_eq!(words(&image), [0, 7, 0, 0]);
        image[5] = 9;
        assert_eq!(words(&image), [0, 7, 0, 0, 0, 9]);
    }
}
