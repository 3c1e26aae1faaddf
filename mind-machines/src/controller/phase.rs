//! In which phase an operation is, and what it meets there: for whatever checks that the controller has met all that it
//! can ([`Config::is_watched`](super::Config::is_watched)).

use super::{
    Controller, OperationId,
    operation::{Operation, Task, Waits},
};

macro_rules! phases {
    ($($name:ident, $task:pat, $sentence:literal;)*) => {
        /// What an operation does next, once what it waits for has come.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Phase {
            /// It waits for others that touch the same.
            Unbegun,
            $(#[doc = $sentence] $name,)*
        }

        impl Phase {
            /// All of them.
            pub const ALL: &[Self] = &[Self::Unbegun, $(Self::$name),*];

            const fn of(task: &Task) -> Self {
                match task {
                    $($task => Self::$name,)*
                }
            }
        }
    };
}

phases! {
    Deciding, Task::Decide(_), "It decides what a request means.";
    Installing, Task::Install(..), "It makes entries of tables say what they should.";
    Recording, Task::Keep, "It records what has changed.";
    Replying, Task::Reply(_), "It answers its request.";
    Finishing, Task::Finish(_), "It answers its request, and has the answer recorded soon.";
    Releasing, Task::Release, "It lets others come between.";
    Awaiting, Task::WaitForPackets, "It waits for the packets in the switch.";
    Giving, Task::Give(_), "It gives slots for further use.";
    Clearing, Task::Cleared(_), "It lets memory that was freed be zeroed.";
    Reclaiming, Task::Reclaim(_), "It takes slots back.";
    Adapting, Task::Adapt(_), "It has regions split and merged.";
    Mapping, Task::Map(_), "It makes a vma.";
    Changing, Task::Change(_), "It changes regions.";
    FreeingRegions, Task::FreeRegions(..), "It frees the regions of a range.";
    Unmapped, Task::Unmapped(_), "It ends a vma.";
    Flushing, Task::Flush(..), "It has blades drop what they have of a range.";
    Syncing, Task::Sync(_), "It has a blade give up what it owns of a range.";
    Finding, Task::FindRegion(_), "It finds the region of an address, and has it changed.";
    Joining, Task::Join(..), "It lets a blade join.";
    Fencing, Task::Fence(_), "It fences a blade.";
    Forgetting, Task::Forget(..), "It makes words forget a compute blade.";
    FencingOperations, Task::FenceOperations(..), "It has memory blades refuse what a compute blade may have sent.";
    EndingProcesses, Task::EndProcesses(..), "It finds what a compute blade's processes leave.";
    Exits, Task::Exits(..), "It ends the processes of a compute blade.";
    Exit, Task::Exit(..), "It ends a process.";
    MarkingLost, Task::MarkLost(..), "It marks regions of which writes are lost.";
    Losing, Task::Lose(..), "It loses the regions of a memory blade.";
    Zeroing, Task::Zero(..), "It has memory zeroed that was freed.";
    GivingUp, Task::GiveUp(_), "It gives up vmas that a process had open.";
    FreeingNext, Task::FreeNext(_), "It frees the next vma of a domain.";
    FlushingLost, Task::FlushLost(..), "It has blades drop what they have of vmas that are lost.";
    TakingOver, Task::TakeOver(_), "It takes over from another controller.";
    Counting, Task::Count(_), "It asks compute blades what they count.";
}

/// What an operation meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Incident {
    /// What it had done to tables, words or records is done, or packets have left the switch.
    Done,
    /// The same could not be done.
    NotDone,
    /// An agent has carried out what it was told to.
    CarriedOut,
    /// An agent could not.
    NotCarriedOut,
    /// An agent did not in time.
    TooLate,
    /// The connection of an agent ends before it has.
    CutOff,
    /// A time has come, another operation has ended, or something else has that it waited for.
    Over,
    /// The connection that asked for it ends.
    NotAwaited,
    /// The controller dies.
    Died,
}

impl Incident {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Done,
        Self::NotDone,
        Self::CarriedOut,
        Self::NotCarriedOut,
        Self::TooLate,
        Self::CutOff,
        Self::Over,
        Self::NotAwaited,
        Self::Died,
    ];
}

impl Operation {
    fn phase(&self) -> Option<Phase> {
        match self.is_admitted {
            true => self.tasks.last().map(Phase::of),
            false => Some(Phase::Unbegun),
        }
    }
}

impl Controller {
    /// The phases of all operations that wait for something.
    pub fn phases(&self) -> impl Iterator<Item = Phase> {
        let waits =
            |operation: &&Operation| !operation.is_admitted || operation.waits != Waits::Nothing;
        self.operations
            .values()
            .filter(waits)
            .filter_map(Operation::phase)
    }

    /// What operations have met since this was called last, and in which phase; nothing unless that is
    /// [watched](super::Config::is_watched).
    pub fn take_incidents(&mut self) -> Vec<(Phase, Incident)> {
        std::mem::take(&mut self.incidents)
    }

    /// An operation meets something.
    pub(super) fn meets(&mut self, id: OperationId, incident: Incident) {
        if self.config.is_watched {
            let phase = self.operations.get(&id).and_then(Operation::phase);
            self.incidents.extend(phase.map(|phase| (phase, incident)));
        }
    }

    /// An operation goes on that waited for something which the controller is not handed in.
    pub(super) fn goes_on(&mut self, operation: &Operation) {
        let is_over = match operation.waits {
            Waits::Nothing | Waits::Seen | Waits::Orders => !operation.is_admitted,
            Waits::Until(_)
            | Waits::Operations(_)
            | Waits::Fences
            | Waits::Zeroed
            | Waits::Blades(_) => true,
        };
        if self.config.is_watched && is_over {
            let phase = operation.phase();
            self.incidents
                .extend(phase.map(|phase| (phase, Incident::Over)));
        }
    }
}
