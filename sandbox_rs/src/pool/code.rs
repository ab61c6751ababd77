//! Compiled sources, kept by the host as bytes and loaded inside a jail only.
//!
//! The whole source is the key: no two sources can be taken for one another, however they were
//! made. A worker sends the bytes before any of the source has run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Profile and text of a source.
type Key = (usize, Arc<str>);

/// Sources and their code, the oldest first to go.
#[derive(Default)]
pub(super) struct CodeCache {
    most_bytes: usize,
    bytes: usize,
    code: HashMap<Key, Arc<Vec<u8>>>,
    order: VecDeque<Key>,
}

impl CodeCache {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            ..Self::default()
        }
    }

    pub(super) fn get(&self, profile: usize, source: &Arc<str>) -> Option<Arc<Vec<u8>>> {
        if self.most_bytes == 0 {
            return None;
        }
        self.code.get(&(profile, Arc::clone(source))).cloned()
    }

    /// Keep the first code of a source; one that is too large for the cache is not kept.
    pub(super) fn put(&mut self, profile: usize, source: &Arc<str>, code: Vec<u8>) {
        let size = source.len() + code.len();
        let key = (profile, Arc::clone(source));
        if size > self.most_bytes || self.code.contains_key(&key) {
            return;
        }
        self.bytes += size;
        self.code.insert(key.clone(), Arc::new(code));
        self.order.push_back(key);
        while self.bytes > self.most_bytes {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(code) = self.code.remove(&oldest) {
                self.bytes -= oldest.1.len() + code.len();
            }
        }
    }

    /// Forget a profile: its interpreter may be another one now.
    pub(super) fn forget(&mut self, profile: usize) {
        let (kept, gone) = self.order.drain(..).partition(|key: &Key| key.0 != profile);
        self.order = kept;
        for key in gone as VecDeque<Key> {
            if let Some(code) = self.code.remove(&key) {
                self.bytes -= key.1.len() + code.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_the_account_stays_right() {
        let mut cache = CodeCache::new(40);
        let sources: Vec<Arc<str>> = ["aaaa", "bbbb", "cccc"]
            .into_iter()
            .map(Into::into)
            .collect();
        for source in &sources {
            cache.put(0, source, vec![0; 12]); // 16 bytes each: two fit
        }
        assert!(cache.get(0, &sources[0]).is_none());
        assert!(cache.get(0, &sources[1]).is_some() && cache.get(0, &sources[2]).is_some());
        assert!(cache.get(1, &sources[1]).is_none());
        assert_eq!(cache.bytes, 32);
        cache.put(1, &sources[0], vec![0; 40]); // alone too large
        assert_eq!(cache.bytes, 32);
        cache.forget(0);
        assert_eq!(
            (cache.bytes, cache.code.len(), cache.order.len()),
            (0, 0, 0)
        );
    }
}
