//! Which of up to 2^24 slots are taken: a 64-ary tree of bits.
//!
//! Owns bits and nothing else; what a bit stands for is `range`'s business. Each level above the leaves has one bit
//! per word below it, set when that word is full, so that the next free slot is found in one step per level (four
//! levels at most) however full the set is.

/// Slots 0‥len-1, each free or taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    len: u32,
    used: u32,
    /// `levels[0]` are the slots; bits behind the last slot are set on every level, so that they are never free.
    levels: Vec<Vec<u64>>,
}

impl Bitmap {
    /// The most slots a bitmap holds, 2^24 (2 MiB and a bit).
    pub const MAX_LEN: u32 = 1 << 24;

    /// `len` free slots; `None` if there are more than [`MAX_LEN`](Self::MAX_LEN).
    pub fn new(len: u32) -> Option<Self> {
        if len > Self::MAX_LEN {
            return None;
        }
        let mut levels = Vec::new();
        let mut bits = len;
        loop {
            let words = bits.div_ceil(64).max(1);
            let mut level = vec![0_u64; words as usize];
            if let Some(last) = level.last_mut() {
                let inside = bits - (words - 1) * 64;
                *last = if inside == 64 { 0 } else { u64::MAX << inside };
            }
            levels.push(level);
            if words == 1 {
                return Some(Self {
                    len,
                    used: 0,
                    levels,
                });
            }
            bits = words;
        }
    }

    /// Number of slots, free and taken.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no slot at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of taken slots.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Whether `slot` is taken; false outside.
    pub fn has(&self, slot: u32) -> bool {
        slot < self.len && self.word(0, slot / 64) & bit(slot) != 0
    }

    /// Takes `slot`; false if it was taken or lies outside.
    pub fn take(&mut self, slot: u32) -> bool {
        if slot >= self.len || self.has(slot) {
            return false;
        }
        self.used += 1;
        let mut at = slot;
        for level in &mut self.levels {
            let word = word_mut(level, at / 64);
            *word |= bit(at);
            if *word != u64::MAX {
                break;
            }
            at /= 64;
        }
        true
    }

    /// Frees `slot`; false if it was free or lies outside.
    pub fn free(&mut self, slot: u32) -> bool {
        if !self.has(slot) {
            return false;
        }
        self.used -= 1;
        let mut at = slot;
        for level in &mut self.levels {
            let word = word_mut(level, at / 64);
            let was_full = *word == u64::MAX;
            *word &= !bit(at);
            if !was_full {
                break;
            }
            at /= 64;
        }
        true
    }

    /// The first free slot at or after `from`.
    pub fn next_free(&self, from: u32) -> Option<u32> {
        if from >= self.len {
            return None;
        }
        let mut at = from;
        for level in 0..self.levels.len() {
            if at / 64 >= self.words(level) {
                return None;
            }
            let free = !self.word(level, at / 64) & (u64::MAX << (at % 64));
            if free != 0 {
                return Some(self.descend(level, (at / 64) * 64 + free.trailing_zeros()));
            }
            at = at / 64 + 1;
        }
        None
    }

    /// From a word with room on `level - 1`, named by its bit on `level`, down to its first free slot.
    fn descend(&self, level: usize, mut at: u32) -> u32 {
        for level in (0..level).rev() {
            at = at * 64 + (!self.word(level, at)).trailing_zeros();
        }
        at
    }

    fn words(&self, level: usize) -> u32 {
        self.levels.get(level).map_or(0, |words| {
            u32::try_from(words.len()).expect("at most 2^24 / 64 words")
        })
    }

    fn word(&self, level: usize, index: u32) -> u64 {
        // a word that is not there counts as full
        self.levels
            .get(level)
            .and_then(|words| words.get(index as usize))
            .copied()
            .unwrap_or(u64::MAX)
    }
}

fn bit(slot: u32) -> u64 {
    1 << (slot % 64)
}

fn word_mut(level: &mut [u64], index: u32) -> &mut u64 {
    level
        .get_mut(index as usize)
        .expect("the slot was compared with the length")
}

#[cfg(test)]
mod tests;
