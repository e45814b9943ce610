//! Order of pairs by experts.

use cutlet as ct;
use cutlet_kernels::moe::Alignment;

use crate::support::{Numbers, device};

fn check([tokens, taken]: [usize; 2], experts: usize, tile: usize, seed: u64) -> ct::Result<()> {
    let (stream, mut numbers) = (device().default_stream(), Numbers::new(seed));
    let count = tokens * taken;
    // Some experts are outside, and some have no pair.
    let choice: Vec<i32> = (0..count).map(|_| numbers.below(experts + 1) as i32 - 1).map(|e| e - e % 3).collect();
    let mut alignment = Alignment::new(&stream, [tokens, taken], experts, tile)?;
    for _ in 0..2 {
        alignment.launch(&stream, device().array(&choice, [tokens, taken])?.view())?;
    }
    let mut pairs = vec![count as i32; alignment.num_places()];
    let (mut places, mut starts, mut of_tile) = (vec![-1; count], vec![0], Vec::new());
    let mut place = 0;
    for expert in 0..experts {
        for pair in (0..count).filter(|&pair| choice[pair] == expert as i32) {
            (pairs[place], places[pair]) = (pair as i32, place as i32);
            place += 1;
        }
        place = place.next_multiple_of(tile);
        of_tile.resize(place / tile, expert as i32);
        starts.push(place as i32);
    }
    of_tile.resize(alignment.num_places() / tile, -1);
    assert_eq!(alignment.starts().to_vec()?, starts);
    assert_eq!(alignment.of_tile().to_vec()?, of_tile);
    assert_eq!(alignment.places().to_vec()?, places);
    assert_eq!(alignment.pairs().to_vec()?, pairs);
    Ok(())
}

#[test]
fn pairs_of_any_number() -> ct::Result<()> {
    check([1, 1], 1, 1, 1)?;
    check([7, 2], 5, 4, 2)?;
    check([700, 3], 60, 16, 3)?;
    check([100, 8], 256, 8, 4)?;
    check([0, 4], 8, 16, 5)
}

#[test]
fn many_blocks_of_pairs() -> ct::Result<()> {
    check([9000, 8], 64, 128, 6)
}
