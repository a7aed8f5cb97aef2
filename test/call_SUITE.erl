%% Calls: values both ways, and what is refused.
-module(call_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) -> [{inst, inst(values)} | Config].

end_per_testcase(_, Config) -> wasmtime:destroy(proplists:get_value(inst, Config)).

call(Config, Name, Args) -> wasmtime:call(proplists:get_value(inst, Config), Name, Args).

%% Sent and given back.
same(Config, Name, Values) ->
    [?assertEqual({V, {ok, [Back]}}, {V, call(Config, Name, [V])}) || {V, Back} <- Values].

refused(Config, Name, Values) ->
    [?assertMatch({V, ?WASMTIME_ERROR(call, badarg)}, {V, call(Config, Name, [V])})
     || V <- Values].

%% i32 takes signed and unsigned, and gives signed.
t_i32(Config) ->
    same(Config, <<"i32">>, [{0, 0}, {-1, -1}, {2147483647, 2147483647},
                             {-2147483648, -2147483648}, {2147483648, -2147483648},
                             {4294967295, -1}]),
    refused(Config, <<"i32">>, [4294967296, -2147483649, 1 bsl 64, 1 bsl 200, -(1 bsl 200), 1.0,
                                a, <<1>>, [], nan, {f32, 0}]).

t_i64(Config) ->
    Max = (1 bsl 63) - 1,
    same(Config, <<"i64">>, [{0, 0}, {-1, -1}, {Max, Max}, {-Max - 1, -Max - 1},
                             {Max + 1, -Max - 1}, {(1 bsl 64) - 1, -1}]),
    refused(Config, <<"i64">>, [1 bsl 64, -Max - 2, 1 bsl 200, -(1 bsl 200), 1.0, a, <<>>, {f64, 0}]).

t_f64(Config) ->
    same(Config, <<"f64">>, [{0.0, 0.0}, {1.5, 1.5}, {-1.0e308, -1.0e308}, {5.0e-324, 5.0e-324},
                             {1, 1.0}, {-3, -3.0}, {nan, nan}, {infinity, infinity},
                             {neg_infinity, neg_infinity}, {{f64, 16#3FF0000000000000}, 1.0},
                             {{f64, 16#7FF0000000000000}, infinity}]),
    ?assertEqual({ok, [-0.0]}, call(Config, <<"f64">>, [-0.0])),
    refused(Config, <<"f64">>, [a, <<>>, 1 bsl 2000, -(1 bsl 2000), {f64, 1 bsl 64}, {f64, -1},
                                {f64, a}, {f32, 0}, [1.0]]).

t_f32(Config) ->
    same(Config, <<"f32">>, [{0.0, 0.0}, {1.5, 1.5}, {1, 1.0}, {nan, nan}, {infinity, infinity},
                             {neg_infinity, neg_infinity}, {{f32, 16#3F800000}, 1.0},
                             {3.4028234663852886e38, 3.4028234663852886e38}]),
    refused(Config, <<"f32">>, [a, 1 bsl 2000, {f32, 1 bsl 32}, {f32, -1}, {f64, 0}, null]).

%% Exact bits go in; a NaN's payload comes out when it is not the canonical one.
t_nan_bits(Config) ->
    Quiet = 16#7FF8000000000001,
    {ok, [Back64]} = call(Config, <<"f64">>, [{f64, Quiet}]),
    ?assert(lists:member(Back64, [nan, {f64, Quiet}])),
    {ok, [Back32]} = call(Config, <<"f32">>, [{f32, 16#7FC00001}]),
    ?assert(lists:member(Back32, [nan, {f32, 16#7FC00001}])).

%% v128 is sixteen bytes, in the guest's order.
t_v128(Config) ->
    Bytes = list_to_binary(lists:seq(1, 16)),
    same(Config, <<"v128">>, [{Bytes, Bytes}, {<<0:128>>, <<0:128>>}]),
    refused(Config, <<"v128">>, [<<0:120>>, <<0:136>>, <<>>, 0, <<0:127>>, a]).

%% All types in one signature keep their places.
t_all_types(Config) ->
    ?assertEqual({ok, [<<5:128/little>>, 4.0, 3.0, 2, 1]},
                 call(Config, <<"all">>, [1, 2, 3.0, 4.0, <<5:128/little>>])),
    ?assertEqual({ok, []}, call(Config, <<"none">>, [])).

%% The message of a wrong type names the position, from 1.
t_position(Config) ->
    {error, #{kind := badarg, message := Message}} =
        call(Config, <<"all">>, [1, 2, bad, 4.0, <<0:128>>]),
    ?assertMatch({_, _}, binary:match(Message, [<<"3">>])).

%% A wrong count says so, and how many there should be.
t_badarity(Config) ->
    {error, #{class := call, kind := badarity, message := Message}} =
        call(Config, <<"all">>, [1, 2]),
    ?assertMatch({_, _}, binary:match(Message, <<"5">>)),
    ?assertMatch(?WASMTIME_ERROR(call, badarity), call(Config, <<"none">>, [1])),
    ?assertMatch(?WASMTIME_ERROR(call, badarity), call(Config, <<"i32">>, [])).

%% Forty parameters and results.
t_many_values(_) ->
    Inst = inst(many),
    Values = lists:seq(1, 40),
    ?assertEqual({ok, lists:reverse(Values)}, wasmtime:call(Inst, <<"reverse">>, Values)),
    ?assertMatch(?WASMTIME_ERROR(call, badarity),
                 wasmtime:call(Inst, <<"reverse">>, lists:seq(1, 39))),
    ok = wasmtime:destroy(Inst).

%% A name may be a binary, a string or iodata, and need not be ASCII.
t_names(Config) ->
    [?assertEqual({ok, [1]}, call(Config, Name, [1])) || Name <- [<<"i32">>, "i32", [$i, <<"32">>]]],
    [?assertEqual({ok, [7]}, call(Config, Name, []))
     || Name <- ["naïve", <<"naïve"/utf8>>, [<<"na">>, <<"ïve"/utf8>>]]].

%% A name with a NUL, or no name at all, is refused.
t_bad_names(Config) ->
    [?assertMatch({Name, ?WASMTIME_ERROR(call, badarg)}, {Name, call(Config, Name, [])})
     || Name <- [<<"i32", 0>>, [0], <<"i32", 0, "x">>, <<255>>, i32, 1, [a], {}, #{}]].

%% What is not exported, or is no function, is `unknown_export'.
t_unknown_export(Config) ->
    [?assertMatch({Name, ?WASMTIME_ERROR(call, unknown_export)}, {Name, call(Config, Name, [])})
     || Name <- [<<"nothing">>, <<>>, <<"I32">>, <<"memory">>, <<"global">>]],
    {error, #{message := Message}} = call(Config, <<"nothing">>, []),
    ?assertMatch({_, _}, binary:match(Message, <<"nothing">>)).

%% Arguments that are no list are refused.
t_bad_arguments(Config) ->
    [?assertMatch({Args, ?WASMTIME_ERROR(call, badarg)}, {Args, call(Config, <<"i32">>, Args)})
     || Args <- [1, [1 | 2], {1}, <<1>>, #{}]].

%% What is no instance is an exception.
t_no_instance(_) ->
    [?assertError(badarg, wasmtime:call(Bad, <<"f">>, []))
     || Bad <- [make_ref(), 1, {wasmtime_instance, make_ref(), #{}}, wasmtime_test:mod(add)]].

%% Every instance has a reference of its own, for ever.
t_ref(Config) ->
    Inst = proplists:get_value(inst, Config),
    Other = inst(values),
    ?assert(is_reference(wasmtime:ref(Inst))),
    ?assertEqual(wasmtime:ref(Inst), wasmtime:ref(Inst)),
    ?assertNotEqual(wasmtime:ref(Inst), wasmtime:ref(Other)),
    Before = wasmtime:ref(Other),
    ok = wasmtime:destroy(Other),
    ?assertEqual(Before, wasmtime:ref(Other)),
    [?assertError(badarg, wasmtime:ref(Bad)) || Bad <- [make_ref(), 1, self(), wasmtime_test:mod(add)]],
    {ok, Template} = wasmtime:prepare(wasmtime_test:mod(add), #{}),
    {ok, A} = wasmtime:instantiate(Template),
    {ok, B} = wasmtime:instantiate(Template),
    ?assertNotEqual(wasmtime:ref(A), wasmtime:ref(B)),
    ok = wasmtime:destroy(A),
    ok = wasmtime:destroy(B).

%% The fuel of a call runs out, and the next call has its own.
t_fuel(_) ->
    Inst = wasmtime_test:inst(spin, #{}, #{fuel => true}),
    ?assertMatch(?WASMTIME_TRAP(out_of_fuel),
                 wasmtime:call(Inst, <<"spin">>, [], #{fuel => 100_000})),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [], #{fuel => 100_000})),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    ?assertMatch(?WASMTIME_TRAP(out_of_fuel), wasmtime:call(Inst, <<"ok">>, [], #{fuel => 0})),
    ok = wasmtime:destroy(Inst).

%% Fuel for a module that does not count it is refused.
t_fuel_without_fuel(Config) ->
    Inst = proplists:get_value(inst, Config),
    ?assertMatch(?WASMTIME_BADARG(fuel), wasmtime:call(Inst, <<"none">>, [], #{fuel => 1})).

%% Calls by several processes on one instance run one after the other, and all are answered.
t_concurrent_calls(_) ->
    Inst = inst(memory),
    N = 50,
    Callers = [wasmtime_test:caller(fun() -> wasmtime:call(Inst, <<"count">>, []) end)
               || _ <- lists:seq(1, N)],
    Counts = [receive {Pid, {ok, [Count]}} -> Count end || {Pid, _} <- Callers],
    ?assertEqual(lists:seq(1, N), lists:sort(Counts)),
    ok = wasmtime:destroy(Inst).

%% Neither a call nor a failed one leaves anything in the mailbox.
t_mailbox(Config) ->
    _ = [call(Config, Name, [1]) || Name <- [<<"i32">>, <<"none">>, <<"nothing">>]],
    ?assertEqual([], wasmtime_test:mailbox()).

%% After destroy every use says so.
t_destroyed(Config) ->
    Inst = proplists:get_value(inst, Config),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call(Inst, <<"none">>, [])),
    ?assertMatch({error, #{kind := destroyed}}, wasmtime:read_memory(Inst, 0, 1)),
    ?assertMatch({error, #{kind := destroyed}}, wasmtime:write_memory(Inst, 0, <<1>>)),
    ?assertMatch({error, #{kind := destroyed}}, wasmtime:memory_size(Inst)),
    ?assertEqual(not_running, wasmtime:interrupt(Inst)),
    ok = wasmtime:destroy(Inst).

%% The longest name that an export may have is found. A longer one is unknown, whatever its size and wherever a
%% cut would hit it, and no more of it is shown than fits a message.
t_long_names(_) ->
    Longest = binary:copy(<<"n">>, 100_000),
    Inst = inst({wat, ["(module (func (export \"", Longest, "\") (result i32) (i32.const 7)))"]}),
    ?assertEqual({ok, [7]}, wasmtime:call(Inst, Longest, [])),
    ?assertMatch({ok, _}, wasmtime:funcref(Inst, Longest)),
    Asked = [{call, fun(Name) -> wasmtime:call(Inst, Name, []) end},
             {call, fun(Name) -> wasmtime:funcref(Inst, Name) end},
             {memory, fun(Name) -> wasmtime:memory_size(Inst, Name) end},
             {table, fun(Name) -> wasmtime:table_size(Inst, Name) end},
             {global, fun(Name) -> wasmtime:global_get(Inst, Name) end}],
    [begin
         {error, #{class := Class, kind := unknown_export, message := Message}} = Ask(Name),
         ?assert(byte_size(Message) < 3000)
     end || {Class, Ask} <- Asked,
            Name <- [<<Longest/binary, "n">>, <<Longest/binary, "nnnn">>, <<Longest/binary, "nnnnn">>,
                     binary:copy(<<"\x{20AC}"/utf8>>, 40_000), binary:copy(<<"\x{1F600}"/utf8>>, 25_002),
                     <<"n", (binary:copy(<<"\x{1F600}"/utf8>>, 25_002))/binary>>,
                     binary:copy(<<1>>, 20_000_000)]],
    ok = wasmtime:destroy(Inst).

%% Too many arguments are counted up to where the number tells somebody something.
t_many_arguments(Config) ->
    [begin
         {error, #{class := call, kind := badarity, message := Message}} = call(Config, <<"i32">>, lists:seq(1, N)),
         ?assertMatch({N, {_, _}}, {N, binary:match(Message, Text)})
     end || {N, Text} <- [{2, <<", 2 were">>}, {10_000, <<", 10000 were">>}, {10_001, <<", 10001 or more were">>},
                          {1_000_000, <<", 10001 or more were">>}]].
