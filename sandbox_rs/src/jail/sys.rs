//! Thin wrappers over system calls: one call, one `io::Result`. No policy here.

pub mod arenas;
pub mod attempt;
pub mod bare;
pub mod confine;
pub mod heap;
pub mod io;
pub mod object;
pub mod pipe;
pub mod process;
pub mod seen;
pub mod slots;
pub mod text;
pub mod trial;

use std::io::{Error, Result};

/// Turn the return code of a call into a result.
fn check(code: libc::c_int) -> Result<libc::c_int> {
    if code < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(code)
    }
}

/// Turn the return value of a raw `syscall` into a result.
fn check_long(code: libc::c_long) -> Result<libc::c_long> {
    if code < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(code)
    }
}
