%% Values at their limits: floats of every integer, many at once, and through host functions.
-module(value_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

with_values(Fun) -> wasmtime_test:with_inst(values, #{}, Fun).

%% An f64 takes each integer that there is a float for, and becomes the nearest.
t_f64_integers(_) ->
    Edge = (1 bsl 1024) - (1 bsl 970),
    Integers = [0, 1, (1 bsl 53) + 1, (1 bsl 63) - 1, 1 bsl 63, (1 bsl 64) - 1, 1 bsl 64, (1 bsl 64) + 1,
                (1 bsl 100) + 1, (1 bsl 127) + 1, (1 bsl 128) - 1, 1 bsl 128, (1 bsl 200) - 1,
                (1 bsl 200) + (1 bsl 147), (1 bsl 200) + (1 bsl 147) + 1, (1 bsl 200) + 3 * (1 bsl 147),
                (1 bsl 1023) + 1, Edge - 1],
    with_values(fun(Inst) ->
        [?assertEqual({N, {ok, [nearest(N)]}}, {N, wasmtime:call(Inst, "f64", [N])})
         || I <- Integers, N <- [I, -I]],
        [?assertMatch({N, ?WASMTIME_ERROR(call, badarg)}, {N, wasmtime:call(Inst, "f64", [N])})
         || I <- [Edge, 1 bsl 1024, 1 bsl 1032, 1 bsl 5000], N <- [I, -I]]
    end).

%% Erlang's own conversion is exact for integers of 53 significant bits.
nearest(N) when N < 0 -> -nearest(-N);
nearest(N) when N < 1 bsl 53 -> float(N);
nearest(N) ->
    Cut = length(integer_to_list(N, 2)) - 53,
    {Kept, Rest, Half} = {N bsr Cut, N band ((1 bsl Cut) - 1), 1 bsl (Cut - 1)},
    Up = Rest > Half orelse (Rest =:= Half andalso Kept band 1 =:= 1),
    float((if Up -> Kept + 1; true -> Kept end) bsl Cut).

%% An f32 rounds an integer once, to the nearest, and refuses what is beyond.
t_f32_integers(_) ->
    Edge = (1 bsl 128) - (1 bsl 103),
    Pairs = [{16777217, 16777216.0}, {16777219, 16777220.0},
             %% By way of an f64 these would be rounded twice.
             {(1 bsl 60) + (1 bsl 36) + 1, float((1 bsl 60) + (1 bsl 37))},
             {(1 bsl 100) + (1 bsl 76) + 1, float((1 bsl 100) + (1 bsl 77))},
             {Edge - 1, 3.4028234663852886e38}],
    with_values(fun(Inst) ->
        [?assertEqual({Given, {ok, [Back]}}, {Given, wasmtime:call(Inst, "f32", [Given])})
         || {Given, Back} <- Pairs ++ [{-A, -B} || {A, B} <- Pairs]],
        [?assertMatch({N, ?WASMTIME_ERROR(call, badarg)}, {N, wasmtime:call(Inst, "f32", [N])})
         || I <- [Edge, 1 bsl 128, 1 bsl 2000], N <- [I, -I]]
    end).

%% Floats round to f32, and those beyond its range are refused.
t_f32_floats(_) ->
    with_values(fun(Inst) ->
        [?assertEqual({F, {ok, [Back]}}, {F, wasmtime:call(Inst, "f32", [F])})
         || {F, Back} <- [{0.1, 0.10000000149011612}, {-0.0, -0.0}, {1.0e-50, 0.0},
                          {3.4028235e38, 3.4028234663852886e38}]],
        [?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:call(Inst, "f32", [F]))
         || F <- [3.4028236e38, -3.4028236e38, 1.0e300]]
    end).

%% `nan' goes in as the canonical one and stands for it; others come out as their bits.
t_nan(_) ->
    with_values(fun(Inst) ->
        [?assertEqual({Given, {ok, [Back]}}, {Given, wasmtime:call(Inst, Name, [Given])})
         || {Name, Given, Back} <- [{"f64", nan, nan}, {"f64", {f64, 16#FFF8000000000000}, nan},
                                    {"f64", {f64, 16#7FF8000000000001}, {f64, 16#7FF8000000000001}},
                                    {"f64", {f64, 16#FFFFFFFFFFFFFFFF}, {f64, 16#FFFFFFFFFFFFFFFF}},
                                    {"f32", nan, nan}, {"f32", {f32, 16#FFC00000}, nan},
                                    {"f32", {f32, 16#7F800001}, {f32, 16#7F800001}},
                                    {"f32", {f32, 16#FFFFFFFF}, {f32, 16#FFFFFFFF}}]]
    end).

%% The position of a wrong value is told, whichever it is.
t_position(_) ->
    Inst = wasmtime_test:inst(many),
    Good = lists:seq(1, 40),
    [begin
         {Before, [_ | After]} = lists:split(At - 1, Good),
         {error, #{class := call, kind := badarg, message := Message}} =
             wasmtime:call(Inst, "reverse", Before ++ [bad | After]),
         Want = <<"value ", (integer_to_binary(At))/binary, " of">>,
         ?assertMatch({_, {_, _}}, {Message, binary:match(Message, Want)})
     end || At <- Good],
    ok = wasmtime:destroy(Inst).

%% Forty parameters and results of every type in turn, through the guest and through its host.
t_forty_of_all_types(_) ->
    Types = ["i32", "i64", "f32", "f64", "v128", "externref", "funcref", "anyref"],
    Forty = lists:append(lists:duplicate(5, Types)),
    Signature = ["(param ", lists:join(" ", Forty), ") (result ", lists:join(" ", Forty), ")"],
    Gets = [io_lib:format("(local.get ~w)", [I]) || I <- lists:seq(0, 39)],
    Text = ["(module (import \"env\" \"all\" (func $all ", Signature, "))"
            " (func (export \"guest\") ", Signature, Gets, ")"
            " (func (export \"host\") ", Signature, Gets, "(call $all))"
            " (func $f (export \"f\")))"],
    Mod = wasmtime_test:mod({wat, Text}, #{proposals => #{gc => true}}),
    Self = self(),
    Host = fun(_, Args) -> Self ! {args, Args}, {ok, Args} end,
    Inst = wasmtime_test:inst(Mod, #{{"env", "all"} => Host}),
    {ok, Term} = wasmtime:externref(Inst, term),
    {ok, Func} = wasmtime:funcref(Inst, "f"),
    Values = lists:append(lists:duplicate(5, [-1, 1 bsl 40, 1.5, nan, <<1:128>>, Term, Func, {i31, -1}])),
    {ok, Results} = wasmtime:call(Inst, "guest", Values),
    same(Values, Results),
    {ok, Answers} = wasmtime:call(Inst, "host", Values),
    same(Values, Answers),
    receive {args, Args} -> same(Values, Args) end,
    ok = wasmtime:destroy(Inst).

same(Given, Back) -> ?assertEqual([plain(V) || V <- Given], [plain(V) || V <- Back]).

plain(Ref) when is_reference(Ref) ->
    case wasmtime:ref_info(Ref) of
        #{kind := externref} -> wasmtime:externref_data(Ref);
        Info -> Info
    end;
plain(Value) -> Value.

%% Host functions of every number, at their limits, both ways.
t_host_numbers(_) ->
    Text = "(module (import \"env\" \"f\" (func $f (param i32 i64 f32 f64 v128) (result v128 f64 f32 i64 i32)))"
           " (func (export \"f\") (param i32 i64 f32 f64 v128) (result v128 f64 f32 i64 i32)"
           " (call $f (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4))))",
    Host = fun(_, Args) -> {ok, lists:reverse(Args)} end,
    wasmtime_test:with_inst({wat, Text}, #{{"env", "f"} => Host}, fun(Inst) ->
        [?assertEqual({ok, lists:reverse(Back)}, wasmtime:call(Inst, "f", Given))
         || {Given, Back} <- [{[1 bsl 31, 1 bsl 63, {f32, 16#7FA00000}, {f64, 16#7FF4000000000000}, <<255:128>>],
                               [-(1 bsl 31), -(1 bsl 63), {f32, 16#7FA00000}, {f64, 16#7FF4000000000000}, <<255:128>>]},
                              {[-1, -1, infinity, neg_infinity, <<0:128>>],
                               [-1, -1, infinity, neg_infinity, <<0:128>>]}]]
    end).

%% A name is a binary, a string of characters, or iodata, wherever one is given.
t_names(_) ->
    Text = <<"(module (memory (export \"é\") 1) (global (export \"ü\") (mut i32) (i32.const 1))"
             " (table (export \"ø\") 1 funcref) (func (export \"å\") (result i32) (i32.const 2)))"/utf8>>,
    wasmtime_test:with_inst({wat, Text}, #{}, fun(Inst) ->
        [begin
             ?assertEqual({ok, [2]}, wasmtime:call(Inst, name("å", Form), [])),
             ?assertEqual({ok, 1}, wasmtime:global_get(Inst, name("ü", Form))),
             ?assertEqual({ok, 1}, wasmtime:table_size(Inst, name("ø", Form))),
             ?assertEqual({ok, {1, 65536}}, wasmtime:memory_size(Inst, name("é", Form))),
             ?assertMatch({ok, _}, wasmtime:funcref(Inst, name("å", Form)))
         end || Form <- [binary, chars, iodata]]
    end).

name(Chars, binary) -> unicode:characters_to_binary(Chars);
name(Chars, chars) -> Chars;
name(Chars, iodata) -> [[unicode:characters_to_binary(Chars)], <<>>].
