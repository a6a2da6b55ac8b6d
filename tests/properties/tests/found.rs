//! Inputs with which a check failed once, kept so that it does not again.

use semel_properties::{desk, engine, machine, sessions};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// The check itself was wrong: an id that failed to be stored kept its place in the order, and was then used, without an order,
/// by another call.
#[test]
fn an_id_that_could_not_be_stored_has_no_place_in_the_order_of_what_comes_later() {
    let input = "\
        0000002aa92fa9a90000a7292a0a0a240000a70a24ff000a555569696969696969a9a9a9a9a9ff100000002a2a000001ffff \
        00a7a7292aa9a9a9a9a9a9a9ff0900810000000009 \
    ";
    machine::check(&bytes(input));
}

/// A key that said 0 for an epoch was believed, and the row with that place could not be read again.
#[test]
fn a_session_takes_no_epoch_that_is_none() {
    let input = "\
        1608000000002d6400006aba0000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000 \
    ";
    sessions::check(&bytes(input));
}

/// The check itself was wrong: it looked at a full key only once the refusal had swept it.
#[test]
fn a_key_that_was_full_may_refuse_and_have_room_after_that() {
    let input = "\
        160e012a13005a0d13310001044a09061100000000000647000131da00005c2a3e0100190400410000000000000006000106 \
        1300001573860000000051360100019fd7420305000001148601cd170002261e0000067e01009b000d0000000130e6e04716 \
        32017b42062100000001 \
    ";
    engine::check(&bytes(input));
}

/// A tombstone had lapsed on the way of a group that was undone, and the registry was not told before something else had changed.
#[test]
fn what_has_lapsed_on_the_way_of_a_group_that_is_undone_is_told() {
    let input = "\
        fd4f8d7d944e8bcf3c8e2b6fa382c008e2519cce0e8d1fdde110cdca8221200b6840b1cec0fd3d0adb86c576d03f562faefa \
        24eccc4c3327dcfd7f6ea9b0049309feafb7e0ef33dce97656ea23ac938b5466c513f5ccb50f7fa3bb0ca24f383d898cc603 \
        8699d2c13d13fd639d8803e599144925abb2876e0f333615924b24af88655829182e5daadc5b883b208ce3330c6d6be49cb9 \
        5b99b1f9fa58834d09efec593d76c8ad53c5797f54d7d0cdc669cbd12447bdd2a386ad6facef878f0a1f7913952a17a66ebd \
        76c3a95f141b5028014a78af6d78906da3670c8caacd8cd7fde8a4248f712f11242a0d2cca91ee4eba32e9bbbd800bf96c93 \
        9c5621f92fda20f2b9ccb2fb186b88e02ed7c270c9fce28186aa7c643c7226710f376d3313b83c09e93327439b0a030504d4 \
        c51b45c5fa70c1828ed8fbef8a71489ed7aa21322d93718b02028200e6a58a90823b7e8a46046d8decb6100fc9d5eeb1644e \
        9a4baa3ab2f8dcb8cdcabddfdc9a40276394d4f9296d535128a3a1d53d19f06b000a479c9025bcea8fd205f84c219125b165 \
        2c640dd97434d098b217a5488a39c81793e004b5cca359fc428072ac110d360fc3a3c93dc7669502ad7514df87ca2add7b33 \
        6d408b80373d3bcd4901a054b09924f756a681d8b338778e9340c7bb2acea8810fa16749fbb20804179c287074f6d3ab3475 \
        d513dd42aa48a4f4980ad5b113e969051e05d0c4838962e1fc63461317f7963c563deb184e031956ccb6f828e4c419bdcf2c \
        4cbde7d64d0dd31d52fd213df5ff4e21b0c1b803c154eaabd9ab06a83bd2efc4fcd0c2a3bdb4c5220c7c5afc8e428d5259b8 \
        782a50f2ae58d2b557db12ea2f4d43ba6cf28d384792a70a0e67090c918982da041b914a299b01b6f2c20b4aab4cdd1dc60d \
        f19a36508ec9e3ac40cc6a30171f7e7fbe35a24b \
    ";
    desk::check(&bytes(input));
}
