//! Confinement: the only place that talks to the kernel.

pub mod child;
pub mod plan;
pub mod proof;
#[expect(
    unsafe_code,
    reason = "the one place that calls the kernel and the C API of Python"
)]
pub mod sys;
