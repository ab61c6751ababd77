//! Program text in the template, on huge pages. The text of a large library is tens of pages that
//! every worker maps by a fault of its own, and that every switch between workers looks up again;
//! on a huge page it is one entry, which a fork copies.
//!
//! Best effort: what fails costs time, never safety. No memory is writable and executable at once.

use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::{
    copy_nonoverlapping, null_mut, with_exposed_provenance, with_exposed_provenance_mut,
};

const HUGE: usize = 2 << 20;
const PAGE: usize = 4 << 10;
/// A block is moved if this program has touched one page in so many of it.
const ONE_IN: usize = 4;

/// A range of addresses of one file that nobody can write.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    start: usize,
    end: usize,
    is_text: bool,
    path: String,
}

/// Before the first fork, in a process with one thread: copy whole blocks of program text, with the
/// constants around it, to huge pages in the same place.
///
/// Elsewhere than on x86-64 nothing happens: what caches of instructions want there is not tried.
pub fn settle() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Ok(pages) = File::open("/proc/self/pagemap") else {
        return;
    };
    for block in blocks(&ranges(&text)) {
        if num_touched(&pages, block) * ONE_IN >= HUGE / PAGE {
            replace(block);
        }
    }
}

fn ranges(maps: &str) -> Vec<Range> {
    let range = |line: &str| {
        let (path, mut words) = (line.find('/')?, line.split_ascii_whitespace());
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        Some(Range {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            is_text: rights == "r-xp",
            path: line[path..].to_owned(),
        })
        .filter(|_| matches!(rights, "r-xp" | "r--p"))
    };
    maps.lines().filter_map(range).collect()
}

/// Starts of the aligned blocks that ranges of one file cover without a gap, text among them.
fn blocks(ranges: &[Range]) -> Vec<usize> {
    let follows = |a: &Range, b: &Range| a.end == b.start && a.path == b.path;
    let mut found = Vec::new();
    for run in ranges.chunk_by(follows) {
        let (first, last) = (run[0].start, run[run.len() - 1].end);
        let mut place = first.next_multiple_of(HUGE);
        while place + HUGE <= last {
            let has_text = |r: &Range| r.is_text && r.start < place + HUGE && r.end > place;
            if run.iter().any(has_text) {
                found.push(place);
            }
            place += HUGE;
        }
    }
    found
}

/// Pages of a block that this process has mapped.
fn num_touched(pages: &File, block: usize) -> usize {
    const ENTRY: usize = 8;
    let mut entries = [0u8; HUGE / PAGE * ENTRY];
    let at = (block / PAGE * ENTRY) as u64;
    if pages.read_exact_at(&mut entries, at).is_err() {
        return 0;
    }
    // The highest bit of an entry, in the byte order of the machine.
    let is_present = |entry: &&[u8]| entry[ENTRY - 1] & 0x80 != 0;
    entries.chunks_exact(ENTRY).filter(is_present).count()
}

/// Put a copy of a block, on a huge page, in its place.
fn replace(block: usize) {
    // SAFETY: the new mapping is ours alone until it is moved. Its aligned half is written once,
    // from the block, which is mapped and readable; then it is made executable and no longer
    // writable, and moved over the block in one call: an address in it reads the same before and
    // after, and the one thread is in the kernel meanwhile. What is left of the mapping is unused.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let room = libc::mmap(null_mut(), 2 * HUGE, rights, kind, -1, 0);
        if room == libc::MAP_FAILED {
            return;
        }
        let start = room.expose_provenance();
        let copy = start.next_multiple_of(HUGE);
        let place = with_exposed_provenance_mut::<c_void>(copy);
        let moved = libc::madvise(place, HUGE, libc::MADV_HUGEPAGE) == 0 && {
            let source = with_exposed_provenance::<u8>(block);
            copy_nonoverlapping(source, place.cast::<u8>(), HUGE);
            libc::mprotect(place, HUGE, libc::PROT_READ | libc::PROT_EXEC) == 0 && {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let target = with_exposed_provenance_mut::<c_void>(block);
                libc::mremap(place, HUGE, HUGE, flags, target) != libc::MAP_FAILED
            }
        };
        // Behind the copy, before it, and itself if it stays.
        let rest = copy + HUGE;
        libc::munmap(with_exposed_provenance_mut(rest), start + 2 * HUGE - rest);
        if copy > start {
            libc::munmap(room, copy - start);
        }
        if !moved {
            libc::munmap(place, HUGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
200000-280000 r--p 00000000 fe:00 1 /lib/one.so
280000-420000 r-xp 00080000 fe:00 1 /lib/one.so
420000-700000 r--p 00220000 fe:00 1 /lib/one.so
700000-710000 r--p 00500000 fe:00 1 /lib/one.so
710000-720000 rw-p 00510000 fe:00 1 /lib/one.so
800000-a00000 r-xp 00000000 fe:00 2 /lib/two parts.so
a00000-b00000 r-xp 00000000 fe:00 3 /lib/three.so
c00000-e00000 rw-p 00000000 00:00 0
e00000-1000000 r-xp 00000000 00:00 0 [vdso]
1000000-1200000 r--p 00000000 fe:00 4 /lib/constants
";

    #[test]
    fn whole_blocks_of_one_file_with_text_in_them_are_found() {
        let ranges = ranges(MAPS);
        assert_eq!(ranges.len(), 7);
        assert_eq!(ranges[4].path, "/lib/two parts.so");
        // 400000: text up to 420000. 600000: constants alone, and not whole. a00000: half a block.
        assert_eq!(blocks(&ranges), [0x20_0000, 0x40_0000, 0x80_0000]);
    }

    extern "C" fn answer(number: usize) -> usize {
        number * 2 + 1
    }

    #[test]
    fn replaced_text_reads_and_runs_as_before() {
        // Large enough for an aligned block; made of our own code, over and over.
        // SAFETY: fresh memory, filled before it is read; a copy of a function that is leaf code
        // without references to its own place is called through its own type.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let room = libc::mmap(null_mut(), 2 * HUGE, rights, kind, -1, 0);
            assert_ne!(room, libc::MAP_FAILED);
            let block = room.expose_provenance().next_multiple_of(HUGE);
            let bytes = with_exposed_provenance_mut::<u8>(block);
            for at in 0..HUGE {
                bytes.add(at).write((at % 251) as u8);
            }
            // lea rax, [rdi + rdi + 1]; ret
            let code = [0x48, 0x8d, 0x44, 0x3f, 0x01, 0xc3];
            copy_nonoverlapping(code.as_ptr(), bytes, code.len());
            assert_eq!(
                libc::mprotect(bytes.cast(), HUGE, libc::PROT_READ | libc::PROT_EXEC),
                0
            );
            let call: extern "C" fn(usize) -> usize = std::mem::transmute(bytes);
            if cfg!(target_arch = "x86_64") {
                assert_eq!(call(20), answer(20));
                replace(block);
                assert_eq!(call(21), answer(21));
            }
            assert!((code.len()..HUGE).all(|at| *bytes.add(at) == (at % 251) as u8));
            libc::munmap(room, 2 * HUGE);
        }
    }
}
