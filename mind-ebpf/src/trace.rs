//! Records what becomes of each packet while packets are traced. While none are, each step here is a load and a branch.
//!
//! A packet's record is filled in step by step, in a per-processor map, and given out at the end, when the verdict is
//! known. Each step checks anew whether packets are traced: the verifier then drops the result after the step, and
//! walks what follows once.
//!
//! What a step does then is a global function, which the verifier walks once by itself and not again wherever it is
//! called. Such a function takes and returns numbers only, and has to return one: [`DONE`].

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use mind_common::{
    directory::Word,
    frame::Frame,
    trace::{KNOWS_BTH, KNOWS_VA, KNOWS_WORD, Record, Tracing},
    verdict::Verdict,
    wire::Opcode,
};

use crate::{atomics, maps};

/// What global functions return; their callers ignore it.
const DONE: u32 = 0;

/// Which packets are traced, if any are.
#[inline(always)]
fn selection() -> Option<*const Tracing> {
    let tracing = maps::TRACING.get_ptr(0)?;
    // SAFETY: the pointer is a lookup's.
    (unsafe { atomics::load(&raw const (*tracing).on) } != 0).then_some(tracing)
}

/// A packet comes in.
#[inline(always)]
pub fn begin(ifindex: u32) {
    if selection().is_some() {
        mind_trace_begin(ifindex);
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_trace_begin(ifindex: u32) -> u32 {
    let Some(record) = maps::TRACED.get_ptr_mut(0) else {
        return DONE;
    };
    // SAFETY: a value of this processor's own, which no other program changes while this one runs; so below.
    unsafe {
        (*record).when = bpf_ktime_get_ns();
        (*record).ifindex = ifindex;
        (*record).known = 0;
    }
    DONE
}

/// It is RoCEv2 for the switch.
#[inline(always)]
pub fn frame(frame: &Frame) {
    if selection().is_some() {
        // All headers that name an address begin with it.
        let va = frame.reth().va.get();
        mind_trace_frame(
            frame.bth.opcode,
            frame.bth.dest_qp(),
            frame.bth.seq().get(),
            va,
        );
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_trace_frame(opcode: u8, qp: u32, psn: u32, va: u64) -> u32 {
    const AETHS: core::ops::RangeInclusive<u8> =
        Opcode::ReadResponse as u8..=Opcode::AtomicAcknowledge as u8;
    let Some(record) = maps::TRACED.get_ptr_mut(0) else {
        return DONE;
    };
    let names_va = if AETHS.contains(&opcode) { 0 } else { KNOWS_VA };
    // SAFETY: see above.
    unsafe {
        (*record).opcode = opcode as u32;
        (*record).qp = qp;
        (*record).psn = psn;
        (*record).va = va;
        (*record).known = KNOWS_BTH | names_va;
    }
    DONE
}

/// It found the directory word `before`, and left `after`.
#[inline(always)]
pub fn change(before: Word, after: Word) {
    if selection().is_some() {
        mind_trace_change(before.raw(), after.raw());
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_trace_change(before: u64, after: u64) -> u32 {
    let Some(record) = maps::TRACED.get_ptr_mut(0) else {
        return DONE;
    };
    // SAFETY: see above.
    unsafe {
        (*record).before = before;
        (*record).after = after;
        (*record).known |= KNOWS_WORD;
    }
    DONE
}

/// The packet's verdict: gives the record out.
#[inline(always)]
pub fn end(verdict: Verdict) {
    if selection().is_some() {
        mind_trace_end(verdict as u32);
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_trace_end(verdict: u32) -> u32 {
    let (Some(tracing), Some(record)) = (maps::TRACING.get_ptr(0), maps::TRACED.get_ptr_mut(0))
    else {
        return DONE;
    };
    // SAFETY: see above. The selection may change meanwhile; then a record more or less is given out.
    unsafe {
        (*record).verdict = verdict;
        if !(*tracing).wants(&*record) {
            return DONE;
        }
        if maps::RECORDS.output::<Record>(&*record, 0).is_err()
            && let Some(lost) = maps::LOST_RECORDS.get_ptr_mut(0)
        {
            *lost += 1;
        }
    }
    DONE
}
