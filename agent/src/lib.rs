//! Records operators that a program launches on an Ascend NPU, below Python: a library that is loaded before all
//! others (`LD_PRELOAD`).
//!
//! ```text
//! stubs      stand in front of aclnn functions; a stub jumps on if nothing is recorded
//! entry      dlsym hands out stubs, and wrappers in place of other functions
//! links      the same for programs that are linked to CANN's libraries
//! call       reads the arguments of a call without knowing its signature
//! handles    objects that the program created with aclCreateTensor and similar functions
//! roles      parameters that are read and parameters that are written, from public signatures
//! plan       arguments of a call of aclnnXGetWorkspaceSize, until it is launched
//! launch     copies tensors around a launch, on its own stream, into the ring
//! ring       pinned memory of fixed size between the streams and the writer
//! writer     a thread that measures arrived copies and writes the dump
//! dump       instead of all that: receives the dumps that CANN makes itself
//! scope      places in the program that operators are attributed to
//! switches   switches for recording
//! control    interface for the program, or the Python package in it: steps, the end
//! ```
//!
//! Promises: nothing here raises into the program, and no failure of recording changes what the program computes.
//! Anything that cannot be recorded is counted and reported once. When nothing is to be recorded a call costs a
//! comparison and a jump.

#![cfg_attr(
    not(feature = "record"),
    allow(dead_code, reason = "without recording, arguments alone are told of")
)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "reading the arguments of a foreign call takes several operations that rest on one condition"
)]

mod acl;
#[expect(unsafe_code, reason = "reads registers and the stack of calls that it stands in front of")]
mod call;
#[expect(unsafe_code, reason = "functions that C and Python call")]
mod control;
#[expect(unsafe_code, reason = "assembly code that calls pass through")]
mod entry;
#[expect(unsafe_code, reason = "takes the place of functions of CANN that make and release handles")]
mod handles;
#[expect(
    unsafe_code,
    reason = "tables of the loader, in which programs that are linked to CANN have its addresses"
)]
mod links;
#[expect(unsafe_code, reason = "memory at addresses that a foreign call was given")]
mod memory;
mod notes;
#[expect(unsafe_code, reason = "takes the place of functions of CANN that keep executors")]
mod plan;
mod roles;
#[expect(unsafe_code, reason = "functions that C and Python call")]
mod scope;
#[expect(unsafe_code, reason = "assembly code that calls pass through, and the table that it reads")]
mod stubs;
mod switches;
#[expect(unsafe_code, reason = "finds functions by name")]
mod symbols;
mod watch;
mod wrappers;

#[cfg(feature = "record")]
#[expect(unsafe_code, reason = "takes the place of functions of CANN that run operators in the older way")]
mod aclop;
#[cfg(feature = "record")]
#[expect(unsafe_code, reason = "calls the runtime of CANN")]
mod device;
#[cfg(feature = "record")]
#[expect(unsafe_code, reason = "calls the runtime of CANN, and is called back by it")]
mod dump;
#[cfg(feature = "record")]
#[expect(unsafe_code, reason = "takes the place of functions of CANN that capture and replay graphs")]
mod graph;
#[cfg(feature = "record")]
mod launch;
#[cfg(feature = "record")]
#[expect(unsafe_code, reason = "pinned memory that streams write to")]
mod ring;
#[cfg(feature = "record")]
mod settings;
#[cfg(feature = "record")]
mod writer;
