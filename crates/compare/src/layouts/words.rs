//! Words for ranks, and for what they hold.

/// What is wrong with a value.
pub(super) enum Said {
    /// The ranks split, copy or reduce it otherwise than they should.
    Layout(String),
    /// What a rank holds or computes is wrong.
    OfRank(String),
}

impl Said {
    pub(super) fn into_words(self) -> String {
        let (Self::Layout(words) | Self::OfRank(words)) = self;
        words
    }
}

pub(super) fn dropped(ranks: &[u32]) -> String {
    let drop = if ranks.len() == 1 { "drops" } else { "drop" };
    format!("dropout differs between the ranks: {} {drop} other elements than the rest", in_words(ranks))
}

pub(super) fn odd(ranks: &[u32]) -> String {
    match ranks {
        [rank] => format!("rank {rank}'s replica differs"),
        _ => format!("the replicas of {} differ", in_words(ranks)),
    }
}

pub(super) fn order(moved: &[(u32, usize, usize)]) -> String {
    let one =
        |(rank, held, due): &(u32, usize, usize)| format!("rank {rank} holds shard {held}, expected {due}");
    format!("{} (as in the other values)", moved.iter().map(one).collect::<Vec<_>>().join(", "))
}

pub(super) fn cut(zigzag: bool) -> &'static str {
    if zigzag {
        "the ranks hold zigzag shards, expected contiguous ones (as in the other values)"
    } else {
        "the ranks hold contiguous shards, expected zigzag ones (as in the other values)"
    }
}

/// Formats ranks: `rank 3`, `ranks 0-3`, `ranks 0, 2, 5`.
pub(super) fn in_words(ranks: &[u32]) -> String {
    let consecutive = ranks.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match ranks {
        [rank] => format!("rank {rank}"),
        [first, .., last] if consecutive => format!("ranks {first}-{last}"),
        _ => format!("ranks {}", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
