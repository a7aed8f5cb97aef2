%% Random guests for the proofs of isolation: a description is turned into a module's text, and into
%% what an instance of it begins with. Rule: what it begins with is computed here, from the
%% description alone; nothing is shared with what extracts, restores or verifies.
-module(isolation_guest).

-export([text/1, memories/1, look/1, bytes/2]).

-define(PAGE, 65536).
-define(FUNCTIONS, 5).

%% #{memories => [#{bits, min, data => [{At, Seed, Length}]}], tables => [#{bits, size, elems => [{At,
%% [Function]}]}], number => integer(), passive => {Seed, Length}, start => [{Memory, At, Byte}]}.

%% ---- what is there at the beginning ---------------------------------------------------------

%% The bytes of each memory.
memories(#{memories := Memories, start := Start}) ->
    [begin
         Zeros = binary:copy(<<0>>, Min * ?PAGE),
         Image = lists:foldl(fun({At, Data}, Memory) -> set(Memory, At, Data) end, Zeros,
                             segments(M)),
         lists:foldl(fun({At, Byte}, Memory) -> set(Memory, At, <<Byte>>) end, Image,
                     stores(I, M, Start))
     end || {I, #{min := Min} = M} <- numbered(Memories)].

set(Memory, At, Data) ->
    Length = byte_size(Data),
    <<Before:At/binary, _:Length/binary, After/binary>> = Memory,
    <<Before/binary, Data/binary, After/binary>>.

%% The segments of a memory, brought within it.
segments(#{min := Min, data := Data}) ->
    [{At rem (Min * ?PAGE - Length + 1), bytes(Seed, Length)}
     || {At, Seed, Length} <- Data, Length =< Min * ?PAGE].

%% What the start function stores in a memory.
stores(I, #{min := Min}, Start) ->
    [{At rem (Min * ?PAGE), Byte} || {Memory, At, Byte} <- Start, Memory =:= I, Min > 0].

%% The same bytes for the same seed.
bytes(Seed, Length) ->
    {Bytes, _} = rand:bytes_s(Length, rand:seed_s(exsss, Seed)),
    Bytes.

%% What the function `look' answers: sizes of memories, globals, sizes and elements of tables.
look(#{memories := Memories, tables := Tables, number := Number}) ->
    [Min || #{min := Min} <- Memories] ++ globals(Number) ++ [Size || #{size := Size} <- Tables]
        ++ lists:append([elements(Table) || Table <- Tables]).

globals(Number) -> [Number, Number * 3, float(Number), <<Number:64/little, 1:64/little>>, 1].

%% Each element as the number of its function, or -1.
elements(#{size := Size, elems := Elems}) ->
    Set = [{At + I, F} || {At, Fs} <- Elems, {I, F} <- numbered(Fs), At + length(Fs) =< Size],
    [case [F || {Slot, F} <- Set, Slot =:= I] of
         [] -> -1;
         Fs -> 100 + lists:last(Fs)
     end || I <- lists:seq(0, Size - 1)].

numbered(List) -> lists:zip(lists:seq(0, length(List) - 1), List).

%% ---- the module's text ----------------------------------------------------------------------

text(#{memories := Memories, tables := Tables, number := Number} = Guest) ->
    Ms = numbered(Memories),
    Ts = numbered(Tables),
    {wat, ["(module (type $id (func (result i32)))"
           "(import \"env\" \"mark\" (func $mark)) (import \"env\" \"host\" (func $host (param i32)))",
           [memory(I, M) || {I, M} <- Ms], [table(I, T) || {I, T} <- Ts], variables(Number),
           passives(Guest), [function(F) || F <- lists:seq(0, ?FUNCTIONS - 1)],
           "(func $pick (param i32) (result funcref)", [picked(F) || F <- [0, 1, 2]],
           "(ref.null func))",
           start(Ms, Guest), endings(Ms),
           [[access(I, M), [copy(I, M, J, N) || {J, N} <- Ms]] || {I, M} <- Ms],
           [change(I, T) || {I, T} <- Ts], all(Ms, Ts), ")"]}.

memory(I, #{bits := Bits, min := Min} = M) ->
    f("(memory $m~b (export \"m~b\") ~s ~b ~b) ", [I, I, index(Bits), Min, Min + 40])
        ++ [f("(data (memory $m~b) (~s.const ~b) \"~s\")", [I, type(Bits), At, escaped(Data)])
            || {At, Data} <- segments(M)].

table(I, #{bits := Bits, size := Size, elems := Elems}) ->
    f("(table $t~b ~s ~b ~b funcref) ", [I, index(Bits), Size, Size + 10])
        ++ [f("(elem (table $t~b) (~s.const ~b) func ~s)",
              [I, type(Bits), At, [f(" $f~b", [F]) || F <- Fs]])
            || {At, Fs} <- Elems, At + length(Fs) =< Size].

index(32) -> "";
index(64) -> "i64".

type(32) -> "i32";
type(64) -> "i64".

variables(N) ->
    f("(global $i (mut i32) (i32.const ~b)) (global $l (mut i64) (i64.const ~b))"
      "(global $d (mut f64) (f64.const ~b)) (global $v (mut v128) (v128.const i64x2 ~b 1))"
      "(global $f (mut funcref) (ref.null func))", [N, N * 3, N, N])
        ++ "(func (export \"globals\") (param i64) (global.set $i (i32.wrap_i64 (local.get 0)))"
           "(global.set $l (local.get 0)) (global.set $d (f64.reinterpret_i64 (local.get 0)))"
           "(global.set $v (i64x2.splat (local.get 0))) (global.set $f (ref.func $f0)))".

passives(#{passive := {Seed, Length}}) ->
    f("(data $p \"~s\") (elem $e func $f4 $f3 $f2) (elem declare func $f0 $f1)", [escaped(bytes(Seed, Length))])
        ++ "(func (export \"drop\") (data.drop $p) (elem.drop $e))".

function(F) -> f("(func $f~b (type $id) (i32.const ~b))", [F, 100 + F]).

picked(F) ->
    f("(if (i32.eq (local.get 0) (i32.const ~b)) (then (return (ref.func $f~b))))", [F, F]).

start(Ms, #{start := Start}) ->
    case lists:append([[{I, M, Store} || Store <- stores(I, M, Start)] || {I, M} <- Ms]) of
        [] -> "";
        Stores -> ["(func $start ",
                   [f("(i32.store8 $m~b (~s.const ~b) (i32.const ~b))", [I, type(Bits), At, Byte])
                    || {I, #{bits := Bits}, {At, Byte}} <- Stores], ") (start $start)"]
    end.

%% Ways a call ends: each writes before it does.
endings(Ms) ->
    Scatter = [f("(local.set 0 (call $scatter~b (local.get 0) (i32.const 3)))", [I]) || {I, _} <- Ms],
    ["(func (export \"spin\") (param i64) (call $mark) (loop $again ", Scatter, "(br $again)))"
     "(func (export \"trap\") (param i64) ", Scatter, "(unreachable))"
     "(func $deep (export \"deep\") (param i64) ", Scatter, "(call $deep (local.get 0)))"
     "(func (export \"ask\") (param i64 i32) ", Scatter, "(call $host (local.get 1)) ", Scatter, ")"].

%% What writes to a memory, each with any arguments.
access(I, #{bits := Bits}) ->
    filled(I, Bits,
           "(func (export 'store#') (param @ i64) (i64.store $m# (local.get 0) (local.get 1)))"
           "(func (export 'fill#') (param @ i32 @)"
           " (memory.fill $m# (local.get 0) (local.get 1) (local.get 2)))"
           "(func (export 'init#') (param @ i32 i32)"
           " (memory.init $m# $p (local.get 0) (local.get 1) (local.get 2)))"
           "(func (export 'grow#') (param @) (result @) (memory.grow $m# (local.get 0)))")
        ++ scatter(I, Bits).

%% Words of a random sequence, each at the place that it names.
scatter(I, Bits) ->
    {Size, At} = case Bits of
        32 -> {"(i64.extend_i32_u (memory.size $m#))", "(i32.wrap_i64 (i64.rem_u $S $R))"};
        64 -> {"(memory.size $m#)", "(i64.rem_u $S $R)"}
    end,
    Text = ["(func $scatter# (export 'scatter#') (param $s i64) (param $n i32) (result i64)"
            " (local $room i64)"
            " (local.set $room (i64.sub (i64.mul (i64.const 65536) ", Size, ") (i64.const 7)))"
            " (if (i64.gt_s $R (i64.const 0)) (then (loop $again"
            "  (local.set $s (i64.xor $S (i64.shl $S (i64.const 13))))"
            "  (local.set $s (i64.xor $S (i64.shr_u $S (i64.const 7))))"
            "  (local.set $s (i64.xor $S (i64.shl $S (i64.const 17))))"
            "  (i64.store $m# ", At, " $S) (local.set $n (i32.sub (local.get $n) (i32.const 1)))"
            "  (br_if $again (i32.gt_s (local.get $n) (i32.const 0)))))) $S)"],
    Locals = [{"$S", "(local.get $s)"}, {"$R", "(local.get $room)"}],
    filled(I, Bits, lists:foldl(fun({Name, Get}, T) -> string:replace(T, Name, Get, all) end,
                                Text, Locals)).

copy(I, #{bits := To}, J, #{bits := From}) ->
    f("(func (export \"copy~b~b\") (param ~s ~s ~s)"
      " (memory.copy $m~b $m~b (local.get 0) (local.get 1) (local.get 2)))",
      [I, J, type(To), type(From), type(min(To, From)), I, J]).

%% What changes a table, likewise, and an element as the number of its function.
change(I, #{bits := Bits}) ->
    filled(I, Bits,
           "(func (export 'set#') (param @ i32)"
           " (table.set $t# (local.get 0) (call $pick (local.get 1))))"
           "(func (export 'place#') (param @ i32 i32)"
           " (table.init $t# $e (local.get 0) (local.get 1) (local.get 2)))"
           "(func (export 'extend#') (param i32 @) (result @)"
           " (table.grow $t# (call $pick (local.get 0)) (local.get 1)))"
           "(func (export 'cover#') (param @ i32 @)"
           " (table.fill $t# (local.get 0) (call $pick (local.get 1)) (local.get 2)))"
           "(func (export 'move#') (param @ @ @)"
           " (table.copy $t# $t# (local.get 0) (local.get 1) (local.get 2)))"
           "(func $at# (param $i @) (result i32)"
           " (if (result i32) (ref.is_null (table.get $t# (local.get $i)))"
           "  (then (i32.const -1)) (else (call_indirect $t# (type $id) (local.get $i)))))").

%% A text with the number and the type of addresses in place.
filled(I, Bits, Text) ->
    Marks = [{"#", integer_to_list(I)}, {"@", type(Bits)}, {"'", "\""}],
    lists:foldl(fun({Mark, For}, T) -> string:replace(T, Mark, For, all) end, Text, Marks).

%% Everything but the bytes of memories.
all(Ms, Ts) ->
    Sizes = [{type(Bits), f("(memory.size $m~b)", [I])} || {I, #{bits := Bits}} <- Ms],
    Globals = [{"i32", "(global.get $i)"}, {"i64", "(global.get $l)"}, {"f64", "(global.get $d)"},
               {"v128", "(global.get $v)"}, {"i32", "(ref.is_null (global.get $f))"}],
    Counts = [{type(Bits), f("(table.size $t~b)", [I])} || {I, #{bits := Bits}} <- Ts],
    Elements = [{"i32", f("(call $at~b (~s.const ~b))", [I, type(Bits), At])}
                || {I, #{bits := Bits, size := Size}} <- Ts, At <- lists:seq(0, Size - 1)],
    {Types, Values} = lists:unzip(Sizes ++ Globals ++ Counts ++ Elements),
    ["(func (export \"look\") (result ", lists:join(" ", Types), ") ", Values, ")"].

escaped(Bytes) -> [["\\", hex(Byte bsr 4), hex(Byte band 15)] || <<Byte>> <= Bytes].

hex(Digit) -> element(Digit + 1, {$0, $1, $2, $3, $4, $5, $6, $7, $8, $9, $a, $b, $c, $d, $e, $f}).

f(Format, Args) -> io_lib:format(Format, Args).
