//! Python's memory in the template, on huge pages: a fork copies one page table entry for each page,
//! so it copies fewer. Used once, before the template locks itself.
//!
//! Best effort: what fails costs time, never safety.

use std::ffi::{CStr, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

const HUGE: usize = 2 << 20;
/// Address space set aside for arenas; what is unused is given back by `settle`.
const RESERVED: usize = 256 << 20;
const MADV_COLLAPSE: i32 = 25;

/// Next free byte of the reserved region, and its end.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Python's record of where arenas come from; the same in all versions.
#[repr(C)]
struct ArenaAllocator {
    context: *mut c_void,
    allocate: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: extern "C" fn(*mut c_void, *mut c_void, usize),
}

fn map(bytes: usize) -> Option<usize> {
    // SAFETY: a new private mapping at an address the kernel chooses touches nothing of ours.
    let start = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (start != libc::MAP_FAILED).then(|| start.expose_provenance())
}

fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the callers own the range: it is unused, or an arena that Python gives back.
        let _ = unsafe { libc::munmap(with_exposed_provenance_mut(start), bytes) };
    }
}

extern "C" fn allocate(_: *mut c_void, bytes: usize) -> *mut c_void {
    let place = NEXT.load(Ordering::Relaxed);
    // One thread: the interpreter is attached to the caller.
    if bytes <= END.load(Ordering::Relaxed).saturating_sub(place) {
        NEXT.store(place + bytes, Ordering::Relaxed);
        return with_exposed_provenance_mut(place);
    }
    map(bytes).map_or(null_mut(), with_exposed_provenance_mut)
}

extern "C" fn free(_: *mut c_void, arena: *mut c_void, bytes: usize) {
    // Also for arenas from before: Python maps those in the same way.
    unmap(arena.expose_provenance(), bytes);
}

/// Take all further arenas of this interpreter from one region. Before anything is imported.
///
/// Where the interpreter lacks the call, nothing changes.
pub fn own() {
    const NAME: &CStr = c"PyObject_SetArenaAllocator";
    // SAFETY: looks up a name; the name is a constant that ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) };
    if found.is_null() || END.load(Ordering::Relaxed) != 0 {
        return;
    }
    let Some(start) = map(RESERVED) else { return };
    let first = start.next_multiple_of(HUGE);
    unmap(start, first - start);
    NEXT.store(first, Ordering::Relaxed);
    END.store(start + RESERVED, Ordering::Relaxed);
    let mut allocator = ArenaAllocator {
        context: null_mut(),
        allocate,
        free,
    };
    // SAFETY: this is the documented type of the symbol, in every version since 3.4; the call
    // copies the record.
    unsafe {
        let set: extern "C" fn(*mut ArenaAllocator) = std::mem::transmute(found);
        set(&raw mut allocator);
    }
}

/// After the imports, before the first fork: give back what is unused of the region, and put what
/// is full of it, and of the C heap, on huge pages.
pub fn settle() {
    let (next, end) = (NEXT.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    let kept = next.next_multiple_of(HUGE).min(end);
    unmap(kept, end - kept); // it would count as address space that workers may use
    END.store(kept, Ordering::Relaxed);
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in text.lines().filter(|line| line.contains(" rw-p ")) {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let kind = words.nth(4).unwrap_or("");
        let Some((start, end)) = range.filter(|_| kind.is_empty() || kind == "[heap]") else {
            continue;
        };
        let number = |word| usize::from_str_radix(word, 16).unwrap_or(0);
        collapse(number(start).next_multiple_of(HUGE), number(end));
    }
}

/// Put each part of a mapping that is in good use on a huge page.
fn collapse(start: usize, end: usize) {
    let mut place = start;
    while place + HUGE <= end {
        let mut resident = [0u8; HUGE / 4096];
        let range = with_exposed_provenance_mut::<c_void>(place);
        // SAFETY: one byte is written per page of the range, which is mapped; larger pages need
        // fewer. Collapsing moves the contents and changes none of them.
        unsafe {
            if libc::mincore(range, HUGE, resident.as_mut_ptr()) == 0
                && resident.iter().filter(|page| **page & 1 == 1).count() * 4 > resident.len()
            {
                let _ = libc::madvise(range, HUGE, MADV_COLLAPSE);
            }
        }
        place += HUGE;
    }
}
