//! No XDP program of this project changes a frame's length: the object is searched for calls of the
//! helpers that do. `mind-ebpf/src/packet.rs` says why.

use aya_obj::{Object, ProgramSection};
use mind_dataplane::harness;

/// `bpf_xdp_adjust_head`, `bpf_xdp_adjust_meta`, `bpf_xdp_adjust_tail`, by their numbers in
/// `include/uapi/linux/bpf.h`.
const CHANGES_LENGTH: [i32; 3] = [44, 54, 65];

/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// A call of a helper by its number; others are of the object's own functions, or the kernel's.
const BY_NUMBER: u8 = 0;

#[test]
fn no_xdp_program_changes_a_frames_length() {
    let product = programs_of(harness::product_object());
    let of_tests = programs_of(harness::object());
    assert!(product >= 2, "only {product} XDP programs were found");
    assert!(
        of_tests >= 5,
        "only {of_tests} XDP programs of tests were found"
    );
}

/// How many XDP programs an object has, none of which changes a frame's length.
fn programs_of(object: &[u8]) -> usize {
    let object = Object::parse(object).expect("the object can be read");
    let mut programs = 0;
    for (name, program) in &object.programs {
        if !matches!(program.section, ProgramSection::Xdp { .. }) {
            continue;
        }
        programs += 1;
        let own = &object.functions[&program.function_key()];
        for function in [own].into_iter().chain(shared(&object)) {
            for instruction in &function.instructions {
                let calls = instruction.code == CALL && instruction.src_reg() == BY_NUMBER;
                assert!(
                    !(calls && CHANGES_LENGTH.contains(&instruction.imm)),
                    "{name} calls helper {} by way of {}",
                    instruction.imm,
                    function.name
                );
            }
        }
    }
    programs
}

/// The helpers that the object's programs call.
fn shared(object: &Object) -> impl Iterator<Item = &aya_obj::Function> {
    let own: Vec<_> = object.programs.values().map(|p| p.function_key()).collect();
    let functions = object.functions.iter();
    functions
        .filter(move |(key, _)| !own.contains(key))
        .map(|(_, function)| function)
}

#[test]
fn the_search_finds_calls() {
    // `bpf_xdp_store_bytes` is 189 and `bpf_xdp_load_bytes` 190: the responder calls both.
    let object = Object::parse(harness::product_object()).expect("the object can be read");
    let program = &object.programs["mind_responder"];
    let function = &object.functions[&program.function_key()];
    let called = |helper| {
        let mut instructions = function.instructions.iter();
        instructions.any(|i| i.code == CALL && i.src_reg() == BY_NUMBER && i.imm == helper)
    };
    assert!(called(189) && called(190), "the search would find nothing");
}
