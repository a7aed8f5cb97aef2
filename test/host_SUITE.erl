%% Host functions: what the guest gets from them, and what becomes of those that fail.
-module(host_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/2, one/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

with(Fun, Test) -> wasmtime_test:with_inst(host, (one(Fun))#{host_timeout => 10_000}, Test).

%% Arguments arrive, results go back, in the calling process.
t_values(_) ->
    Self = self(),
    with(fun(_, [X]) -> ?assertEqual(Self, self()), {ok, [X + 1]} end,
         fun(Inst) ->
             ?assertEqual({ok, [6]}, wasmtime:call(Inst, <<"one">>, [5])),
             ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"one">>, [-2])),
             ?assertEqual({ok, [2.5, 1]}, wasmtime:call(Inst, <<"swap">>, [1, 2.5])),
             ?assertEqual({ok, []}, wasmtime:call(Inst, <<"none">>, []))
         end).

%% Thousands of host calls in one call.
t_many(_) ->
    N = wasmtime_test:rounds(1000, 5000, 100_000),
    with(fun(_, [X]) -> {ok, [X]} end,
         fun(Inst) ->
             ?assertEqual({ok, [N * (N - 1) div 2]}, wasmtime:call(Inst, <<"sum">>, [N]))
         end),
    ?assertEqual([], wasmtime_test:mailbox()).

%% Whichever process calls serves its own host calls.
t_serving_process(_) ->
    with(fun(_, [X]) -> put(served, X), {ok, [X]} end,
         fun(Inst) ->
             Served = wasmtime_test:in_process(fun() ->
                 {ok, [3]} = wasmtime:call(Inst, <<"one">>, [3]),
                 get(served)
             end),
             ?assertEqual(3, Served),
             ?assertEqual(undefined, get(served))
         end).

%% Imports may stand among the options, and names may be strings.
t_import_keys(_) ->
    Fun = fun(_, [X]) -> {ok, [X * 2]} end,
    #{imports := Imports} = one(Fun),
    [begin
         Inst = inst(host, Opts),
         ?assertEqual({ok, [8]}, wasmtime:call(Inst, <<"one">>, [4])),
         ok = wasmtime:destroy(Inst)
     end || Opts <- [Imports,
                     (maps:remove({<<"env">>, <<"one">>}, Imports))#{{"env", "one"} => Fun},
                     #{imports => maps:remove({<<"env">>, <<"one">>}, Imports),
                       {"env", [<<"o">>, "ne"]} => Fun}]].

%% A function that fails traps the call, the message says how, and the instance lives on.
t_failures(_) ->
    Cases = [{"raised", fun() -> error(oops) end, <<"oops">>},
             {"raised", fun() -> 1 div zero() end, <<"badarith">>},
             {"raised", fun() -> no_such_module:f() end, <<"undef">>},
             {"exited", fun() -> exit(normal) end, <<"normal">>},
             {"exited", fun() -> exit(kill) end, <<"kill">>},
             {"threw", fun() -> throw({ball, 1}) end, <<"{ball,1}">>},
             {"returned an error", fun() -> {error, enoent} end, <<"enoent">>},
             {"returned neither", fun() -> ok end, <<"ok">>},
             {"returned neither", fun() -> {ok, 1} end, <<"{ok,1}">>},
             {"returned neither", fun() -> {ok, [1 | 2]} end, <<"{ok,[1|2]}">>},
             {"returned neither", fun() -> make_ref() end, <<"#Ref">>}],
    [with(fun(_, _) -> Fun() end,
          fun(Inst) ->
              {error, #{class := host, kind := host_error, message := Message}} =
                  wasmtime:call(Inst, <<"one">>, [1]),
              [?assertMatch({_, _, {_, _}}, {Part, Message, binary:match(Message, Part)})
               || Part <- [<<"env.one">>, list_to_binary(How), What]],
              ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2])),
              ?assertEqual([], wasmtime_test:mailbox())
          end) || {How, Fun, What} <- Cases].

zero() -> list_to_integer("0").

%% A huge reason makes a short message, and text stays text (wasmtime_error_tests: and costs little).
t_long_reason(_) ->
    Text = fun(Char) -> unicode:characters_to_binary(lists:duplicate(1_000_000, Char)) end,
    [with(fun(_, _) -> Fun() end,
          fun(Inst) ->
              {error, #{kind := host_error, message := Message}} =
                  wasmtime:call(Inst, <<"one">>, [1]),
              ?assert(byte_size(Message) < 2500),
              ?assertNotEqual(nomatch, binary:match(Message, Part))
          end) || {Fun, Part} <- [{fun() -> error(lists:seq(1, 100_000)) end, <<"raised [1,2,3">>},
                                  {fun() -> {error, Text($a)} end, <<"error: aaa">>},
                                  {fun() -> {error, Text(16#20ac)} end, <<"error: \x{20ac}\x{20ac}"/utf8>>},
                                  {fun() -> {error, binary:copy(<<0, 255>>, 500_000)} end, <<"error: <<0,255,0">>},
                                  {fun() -> Text($a) end, <<"aaa">>}]].

%% Results of a wrong count or type are a host error that names the position.
t_wrong_results(_) ->
    [with(fun(_, _) -> {ok, Values} end,
          fun(Inst) ->
              ?assertMatch({Values, ?WASMTIME_ERROR(host, host_error)},
                           {Values, wasmtime:call(Inst, <<"one">>, [1])}),
              ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2]))
          end) || Values <- [[], [1, 2], [a], [1.0], [1 bsl 40], [<<1>>], [self()], [fun() -> 1 end]]],
    [with(fun(_, _) -> {ok, Values} end,
          fun(Inst) ->
              {error, #{message := Message}} = wasmtime:call(Inst, <<"one">>, [1]),
              ?assertMatch({_, {_, _}}, {Message, binary:match(Message, Text)})
          end) || {Values, Text} <- [{[], <<"returned 0 results instead of 1">>},
                                     {lists:duplicate(1000, 0), <<"returned 1000 results instead of 1">>},
                                     {[a], <<"value 1 of the results of the host function env.one">>}]],
    Swap = (one(fun(_, _) -> {ok, [0]} end))#{
        imports => (maps:get(imports, one(fun(_, _) -> {ok, [0]} end)))#{
            {<<"env">>, <<"swap">>} => fun(_, _) -> {ok, [1.0, bad]} end}},
    wasmtime_test:with_inst(host, Swap, fun(Inst) ->
        {error, #{class := host, kind := host_error, message := Message}} =
            wasmtime:call(Inst, <<"swap">>, [1, 1.0]),
        ?assertMatch({_, {_, _}}, {Message, binary:match(Message, <<"2">>)})
    end).

%% A host function may use the instance that calls it: memory ...
t_memory_in_host_fun(_) ->
    with(fun(Inst, [Offset]) ->
             ok = wasmtime:write_memory(Inst, Offset, <<"host">>),
             {ok, <<"host">>} = wasmtime:read_memory(Inst, Offset, 4),
             {ok, {1, 65536}} = wasmtime:memory_size(Inst),
             {ok, [0]}
         end,
         fun(Inst) ->
             ?assertEqual({ok, [0]}, wasmtime:call(Inst, <<"one">>, [100])),
             ?assertEqual({ok, <<"host">>}, wasmtime:read_memory(Inst, 100, 4))
         end).

%% ... and calls, to any depth that the stack allows.
t_nested_calls(_) ->
    with(fun(_, [0]) -> {ok, [0]};
            (Inst, [N]) ->
                {ok, [Below]} = wasmtime:call(Inst, <<"one">>, [N - 1]),
                {ok, [Twice]} = wasmtime:call(Inst, <<"double">>, [N]),
                {ok, [Below + Twice]}
         end,
         fun(Inst) ->
             ?assertEqual({ok, [110]}, wasmtime:call(Inst, <<"one">>, [10])),
             ?assertEqual([], wasmtime_test:mailbox())
         end).

%% Deep nesting, while others look at the process and send it signals.
t_nested_deep_with_signals(_) ->
    Rounds = wasmtime_test:rounds(50, 300, 3000),
    Nest = fun(_, [0]) -> {ok, [0]};
              (Inst, [N]) -> {ok, [Below]} = wasmtime:call(Inst, <<"one">>, [N - 1]),
                             {ok, [Below + 1]}
           end,
    with(Nest, fun(Inst) ->
        Self = self(),
        Prober = spawn_link(fun() -> probe(Self) end),
        [?assertEqual({ok, [20]}, wasmtime:call(Inst, <<"one">>, [20]))
         || _ <- lists:seq(1, Rounds)],
        unlink(Prober),
        exit(Prober, kill)
    end).

probe(Pid) ->
    _ = process_info(Pid, [messages, current_function]),
    erlang:demonitor(erlang:monitor(process, Pid), [flush]),
    probe(Pid).

%% A nested call that traps is an error in the host function only.
t_nested_trap(_) ->
    with(fun(_, [0]) -> error(inner);
            (Inst, [1]) ->
                ?assertMatch(?WASMTIME_ERROR(host, host_error),
                             wasmtime:call(Inst, <<"one">>, [0])),
                {ok, [77]}
         end,
         fun(Inst) -> ?assertEqual({ok, [77]}, wasmtime:call(Inst, <<"one">>, [1])) end).

%% A host function may use other instances.
t_other_instance(_) ->
    with(fun(_, [X]) ->
             wasmtime_test:with_inst(add, #{}, fun(Add) -> wasmtime:call(Add, <<"add">>, [X, 1]) end)
         end,
         fun(Inst) -> ?assertEqual({ok, [8]}, wasmtime:call(Inst, <<"one">>, [7])) end).

%% A call by another process waits until the host function is done.
t_other_process_waits(_) ->
    Self = self(),
    with(fun(Inst, [1]) ->
             {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, <<"double">>, [4]) end),
             Self ! {started, Pid},
             receive {Pid, Early} -> error({not_queued, Early}) after 100 -> ok end,
             {ok, [1]}
         end,
         fun(Inst) ->
             ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"one">>, [1])),
             receive {started, Pid} -> receive {Pid, Late} -> ?assertEqual({ok, [8]}, Late) end end
         end).

%% A host function may destroy the instance: the call ends as destroyed.
t_destroy_in_host_fun(_) ->
    with(fun(Inst, _) -> ok = wasmtime:destroy(Inst), {ok, [1]} end,
         fun(Inst) ->
             ?assertMatch({error, #{kind := destroyed}}, wasmtime:call(Inst, <<"one">>, [1])),
             ?assertEqual([], wasmtime_test:mailbox())
         end).

%% A host function that takes longer than `host_timeout' traps the call; its reply is dropped.
t_host_timeout(_) ->
    Opts = (one(fun(_, [Ms]) -> timer:sleep(Ms), {ok, [1]} end))#{host_timeout => 1000},
    wasmtime_test:with_inst(host, Opts, fun(Inst) ->
        ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"one">>, [1])),
        ?assertMatch(?WASMTIME_ERROR(host, host_timeout), wasmtime:call(Inst, <<"one">>, [2500])),
        ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"one">>, [1])),
        ?assertEqual([], wasmtime_test:mailbox())
    end).

%% The start section may call the host.
t_start_section(_) ->
    Inst = inst(start_host, #{{"env", "one"} => fun(_, [5]) -> {ok, [99]} end}),
    ?assertEqual({ok, <<99>>}, wasmtime:read_memory(Inst, 0, 1)),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(?WASMTIME_ERROR(host, host_error),
                 wasmtime_test:instantiate(wasmtime_test:mod(start_host),
                                      #{{"env", "one"} => fun(_, _) -> error(no) end})).

%% A missing import is named; one too many does no harm; one of the wrong kind is refused.
t_linking(_) ->
    Mod = wasmtime_test:mod(host),
    {error, #{class := link, kind := unknown_import, message := Message}} =
        wasmtime_test:instantiate(Mod, #{{"env", "swap"} => fun(_, _) -> {ok, []} end}),
    ?assertMatch({_, _}, binary:match(Message, <<"one">>)),
    ?assertMatch(?WASMTIME_ERROR(link, unknown_import), wasmtime_test:instantiate(Mod)),
    Extra = one(fun(_, [X]) -> {ok, [X]} end),
    Inst = inst(Mod, Extra#{{"other", "thing"} => fun(_, _) -> {ok, []} end}),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"one">>, [1])),
    ok = wasmtime:destroy(Inst),
    [?assertMatch({K, ?WASMTIME_ERROR(link, _)},
                  {K, wasmtime_test:instantiate(wasmtime_test:mod(list_to_atom("import_" ++ K)),
                                           #{{"env", K} => fun(_, _) -> {ok, []} end})})
     || K <- ["memory", "table", "global"]].

%% A full mailbox neither slows the calls down nor loses a message.
t_full_mailbox(_) ->
    with(fun(_, [X]) -> {ok, [X]} end, fun(Inst) ->
        N = 50_000,
        Sum = fun() -> element(1, timer:tc(fun() -> {ok, [_]} = wasmtime:call(Inst, <<"sum">>, [1000]) end)) end,
        Empty = Sum(),
        [self() ! {noise, I} || I <- lists:seq(1, N)],
        Full = Sum(),
        ?assertEqual(N, length(wasmtime_test:mailbox())),
        [receive {noise, I} -> ok end || I <- lists:seq(1, N)],
        %% A scan of 50,000 messages a thousand times over takes several seconds, and no call without one
        %% takes a hundred times as long as another.
        ?assert(Full < max(2_000_000, 100 * Empty), {Full, Empty})
    end).
