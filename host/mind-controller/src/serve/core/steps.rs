//! The steps of a plan, one by one: what the maps and the agents get to know.

use mind_api::{Command, Errno, Failure, message::BladeKind};
use mind_common::{
    addr::{BLOCK_SHIFT, Va},
    directory::{Origin, State, Word},
    id::{BladeSet, DomainId},
    serial::Seq,
    table::{MAY_READ, MAY_WRITE, Permission, Slot},
};
use mind_controller::{
    directory::{Entry, Step},
    protect::{Change, Class},
};

use super::{Core, broken, index, regions::Patience};

impl Core {
    pub(super) async fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Zero(extent) => {
                let agent = self.agent(BladeKind::Memory, extent.blade)?;
                agent
                    .order(Command::ZeroPages {
                        first: extent.first_page(),
                        count: extent.pages(),
                    })
                    .await
            }
            Step::Change(regions) => self.change(regions, Patience::Full, None).await.map(|_| ()),
            Step::Open(entry) => {
                let nobody = BladeSet::EMPTY;
                let word = Word::default().settled(State::Invalid, nobody);
                self.open(entry, word)
            }
            step => self.rewire(step),
        }
    }

    /// A step that changes maps only.
    pub(super) fn rewire(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Fill { table, entry } => self
                .switch
                .directory()
                .assign(table.0, entry.region, index(entry))
                .map_err(|error| broken(&error)),
            Step::Blank(table) => self
                .switch
                .directory()
                .blank(table.0)
                .map_err(|error| broken(&error)),
            Step::Publish { block, table } => self
                .switch
                .set_block(first_of(*block), Some(table.0))
                .map_err(|error| broken(&error)),
            Step::Withdraw { block, .. } => self
                .switch
                .set_block(first_of(*block), None)
                .map_err(|error| broken(&error)),
            Step::Clear { table, entry } => self
                .switch
                .directory()
                .assign(table.0, entry.region, 0)
                .map_err(|error| broken(&error)),
            Step::Cover(entry) => {
                let directory = self.switch.directory();
                let slot = directory
                    .slot(index(entry))
                    .map_err(|error| broken(&error))?;
                slot.set_region(entry.region);
                Ok(())
            }
            Step::Grant { domain, blade } => self.place(*domain, |blades| blades.with(*blade)),
            Step::Revoke { domain, blade } => self.place(*domain, |blades| blades.without(*blade)),
            Step::Protect { domain, change } => self.protect(*domain, change),
            Step::Zero(_) | Step::Open(_) | Step::Change(_) => {
                unreachable!("a step of its own kind")
            }
        }
    }

    /// The free slot becomes a region's, with that word, next episode.
    pub(super) fn open(&self, entry: &Entry, word: Word) -> Result<(), Failure> {
        let directory = self.switch.directory();
        let slot = directory
            .slot(index(entry))
            .map_err(|error| broken(&error))?;
        let episode = slot.word().episode().next();
        let word = Word::new(word.state(), word.requester(), episode, word.blades());
        let mut fresh = Slot::new(word, entry.region);
        // Of this episode, so that those to come replace it.
        fresh.origin = Origin::new(episode, Seq::default(), entry.region.base()).raw();
        slot.reset(fresh);
        Ok(())
    }

    fn place(
        &mut self,
        domain: u32,
        change: impl FnOnce(BladeSet) -> BladeSet,
    ) -> Result<(), Failure> {
        let blades = change(self.placed.get(&domain).copied().unwrap_or_default());
        self.switch
            .place(DomainId(domain), blades)
            .map_err(|error| broken(&error))?;
        if blades.is_empty() {
            self.placed.remove(&domain);
        } else {
            self.placed.insert(domain, blades);
        }
        Ok(())
    }

    fn protect(&mut self, domain: u32, change: &Change) -> Result<(), Failure> {
        let domain = DomainId(domain);
        let result = match change {
            Change::Set(prefix, class) => {
                self.switch.protect(domain, *prefix, permission_of(*class))
            }
            Change::Remove(prefix) => self.switch.unprotect(domain, *prefix).map(|_| ()),
        };
        result.map_err(|error| match error {
            mind_dataplane::Error::Limit { .. } => Failure::new(Errno::ENOMEM, error.to_string()),
            error => broken(&error),
        })
    }
}

/// A class as the table has it.
pub(super) fn permission_of(class: Class) -> Permission {
    let bits = match class {
        Class::Read => MAY_READ,
        Class::Write => MAY_READ | MAY_WRITE,
    };
    Permission { bits }
}

/// The first address of a block.
fn first_of(block: u64) -> Va {
    Va(block << BLOCK_SHIFT)
}
