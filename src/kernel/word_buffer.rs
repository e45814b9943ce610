//! Words of a key or of parameters, written without allocation.

use std::fmt;
use std::mem::MaybeUninit;

/// The maximum number of words of a specialization key or of parameters without an allocation.
pub const INLINE_WORDS: usize = 96;

/// Words written one after another, without allocation up to [`INLINE_WORDS`].
pub struct WordBuffer {
    /// The first `len` words are written, unless `overflow` is in use. The buffer is not zeroed
    /// beforehand: that would need more time than the rest of a key.
    inline: [MaybeUninit<u64>; INLINE_WORDS],
    len: usize,
    /// All words, if they exceed the inline buffer.
    overflow: Vec<u64>,
}

impl Default for WordBuffer {
    #[inline]
    fn default() -> Self {
        WordBuffer { inline: [const { MaybeUninit::uninit() }; INLINE_WORDS], len: 0, overflow: Vec::new() }
    }
}

impl fmt::Debug for WordBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.words()).finish()
    }
}

impl WordBuffer {
    /// Appends a word.
    #[inline]
    pub fn push(&mut self, word: u64) {
        match self.inline.get_mut(self.len) {
            Some(place) if self.overflow.is_empty() => {
                place.write(word);
                self.len += 1;
            }
            _ => self.push_spilled(word),
        }
    }

    #[cold]
    fn push_spilled(&mut self, word: u64) {
        if self.overflow.is_empty() {
            self.overflow = self.words().to_vec();
        }
        self.overflow.push(word);
    }

    /// Returns the words written so far.
    #[inline]
    pub fn words(&self) -> &[u64] {
        if self.overflow.is_empty() {
            // SAFETY: the first `len` words are written.
            unsafe { std::slice::from_raw_parts(self.inline.as_ptr().cast::<u64>(), self.len) }
        } else {
            &self.overflow
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_beyond_the_inline_ones_are_kept() {
        for count in [0, 1, INLINE_WORDS, INLINE_WORDS + 1, 3 * INLINE_WORDS] {
            let mut writer = WordBuffer::default();
            (0..count as u64).for_each(|word| writer.push(word));
            assert!(writer.words().iter().copied().eq(0..count as u64), "{count}");
        }
    }
}
