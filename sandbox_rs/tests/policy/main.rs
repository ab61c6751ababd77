//! The system call tables and the filters made of them: as data, as programs, and in the kernel.

mod cost;
mod kernel;
mod numbers;
mod program;
mod spec;
mod table;
