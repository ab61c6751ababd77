//! The C library's heap of the template.

/// Largest chunk that is looked for, in bytes.
const LARGEST: usize = 64 << 10;
/// Smallest chunk, in bytes.
const SMALLEST: usize = 24;
/// Most memory that is taken.
const MOST_BYTES: usize = 16 << 20;
/// Chunks in a row that show that the end of the heap is reached.
const IN_A_ROW: usize = 3;

/// Take every free chunk out of the heap, so that workers allocate from its fresh end.
///
/// The imports leave the heap full of holes. Each worker would walk, sort and split them, and every
/// write to a page that it shares with the template is a fault and a copy; fresh pages are cheaper.
/// What is taken is never given back: the template lives as long as its workers are made.
pub fn plug() {
    // SAFETY: plain calls of the allocator; the chunks are kept for good and never written to.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
        // A large request makes the allocator merge its small free chunks first.
        libc::free(libc::malloc(2 * LARGEST));
        let (mut taken, mut size) = (0, LARGEST);
        while size >= SMALLEST && taken < MOST_BYTES {
            // The allocator's own rounding: a header of 8 bytes, steps of 16.
            let chunk = ((size + 8 + 15) & !15).max(32);
            let (mut last, mut run) = (0, 0);
            while run < IN_A_ROW && taken < MOST_BYTES {
                let at = libc::malloc(size) as usize;
                if at == 0 {
                    return;
                }
                run = if at == last + chunk { run + 1 } else { 0 };
                last = at;
                taken += chunk;
            }
            size = if size > 1024 { size / 8 * 7 } else { size - 16 };
        }
    }
}
