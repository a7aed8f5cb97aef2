%% wasmtime_server: one instance with a name. Whatever callers do, the next one is served; and however
%% the server ends, its instance is gone.
-module(server_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, caller/1, calling/1, wait_until/1, settled/0]).
-import(wasmtime_pool_test, [settled_after/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

%% Options of a server of service.wat whose host function is Ask.
opts(Ask) -> opts(Ask, #{}).

opts(Ask, More) ->
    Instance = wasmtime_test:with_runner(#{{"env", "ask"} => fun(_, [X]) -> {ok, [Ask(X)]} end}),
    maps:merge(#{module => mod(service), instance => Instance}, More).

start(More) ->
    {ok, Server} = wasmtime_server:start_link(opts(fun(X) -> X end, More)),
    Server.

count(Server) -> wasmtime_server:call(Server, "count", []).

%% ---- calls ----------------------------------------------------------------------------------

%% The instance keeps its state from call to call, whoever calls; errors are those of a call.
t_calls(_) ->
    Server = start(#{}),
    ?assertEqual({ok, [1]}, count(Server)),
    ?assertEqual({ok, [2]}, wasmtime_test:in_process(fun() -> count(Server) end)),
    ?assertMatch(?WASMTIME_ERROR(call, unknown_export), wasmtime_server:call(Server, "no", [])),
    ?assertMatch(?WASMTIME_ERROR(call, badarity), wasmtime_server:call(Server, "count", [1])),
    ?assertMatch(?WASMTIME_BADARG(x), wasmtime_server:call(Server, "count", [], #{x => 1})),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime_server:call(Server, "count", [], no_map)),
    ?assertMatch({ok, #{calls := 4, failed := 2, fresh := 1, in_flight := 0}}, info(Server)),
    {ok, Inst} = wasmtime_server:instance(Server),
    ?assertEqual({ok, {1, 65536}}, wasmtime:memory_size(Inst)),
    ok = wasmtime_server:stop(Server),
    ?assertEqual([], [M || M <- wasmtime_test:mailbox(), element(1, M) =/= 'EXIT']).

%% The end of a call is counted a moment after its caller knows.
info(Server) ->
    wait_until(fun() -> {ok, #{in_flight := N}} = wasmtime_server:info(Server), N =:= 0 end),
    wasmtime_server:info(Server).

%% A server is found by every sort of name; one that is not there is an error, no name is badarg.
t_names(_) ->
    [begin
         Server = start(#{name => Name}),
         ?assertEqual({error, {already_started, Server}},
                      wasmtime_server:start_link(opts(fun(X) -> X end, #{name => Name}))),
         [?assertMatch({ok, [_]}, count(As)) || As <- [Server | Names]],
         ok = wasmtime_server:stop(hd(Names)),
         [?assertMatch(?WASMTIME_ERROR(call, destroyed), count(As)) || As <- [Server | Names]]
     end || {Name, Names} <- [{here, [here, {local, here}, {here, node()}]},
                              {{local, here}, [here]},
                              {{global, {a, term}}, [{global, {a, term}}]},
                              {{via, global, other}, [{via, global, other}, {global, other}]}]],
    [?assertError(badarg, F(Bad)) || Bad <- [1, "here", {a, b, c}, {via, no_such_module, x}],
                                     F <- [fun count/1, fun wasmtime_server:info/1,
                                           fun wasmtime_server:interrupt/1,
                                           fun wasmtime_server:instance/1,
                                           fun wasmtime_server:reset/1,
                                           fun wasmtime_server:stop/1]],
    [?assertMatch(?WASMTIME_ERROR(call, destroyed), F(nobody))
     || F <- [fun wasmtime_server:info/1, fun wasmtime_server:interrupt/1,
              fun wasmtime_server:instance/1, fun wasmtime_server:reset/1,
              fun wasmtime_server:stop/1, fun(S) -> wasmtime_server:swap(S, mod(service)) end]].

%% Host functions run in the calling process.
t_host_function(_) ->
    Self = self(),
    {ok, Server} = wasmtime_server:start_link(opts(fun(X) -> Self = self(), X + 1 end)),
    ?assertEqual({ok, [6]}, wasmtime_server:call(Server, "ask", [5])),
    ok = wasmtime_server:stop(Server).

%% A host function that calls its own server is served inside the call that waits for it.
t_nested(_) ->
    Ask = fun(_) -> {ok, [N]} = count(nested), N end,
    {ok, _} = wasmtime_server:start_link(opts(Ask, #{name => nested})),
    ?assertEqual({ok, [1]}, wasmtime_server:call(nested, "ask", [0], #{timeout => 5000})),
    ?assertEqual({ok, [2]}, count(nested)),
    ok = wasmtime_server:stop(nested).

%% Calls are served in the order of their coming.
t_order(_) ->
    Self = self(),
    {ok, Server} = wasmtime_server:start_link(opts(fun(0) -> receive go -> 0 end; (X) -> Self ! X, X end)),
    {First, _} = caller(fun() -> wasmtime_server:call(Server, "ask", [0]) end),
    calling(First),
    Callers = [begin
                   {Pid, _} = caller(fun() -> wasmtime_server:call(Server, "ask", [X]) end),
                   calling(Pid),
                   Pid
               end || X <- lists:seq(1, 20)],
    ?assertMatch({ok, #{in_flight := 21}}, wasmtime_server:info(Server)),
    First ! go,
    [receive {Pid, {ok, [_]}} -> ok end || Pid <- [First | Callers]],
    ?assertEqual(lists:seq(1, 20), [X || X <- wasmtime_test:mailbox(), is_integer(X)]),
    ok = wasmtime_server:stop(Server).

%% ---- timeouts and deaths --------------------------------------------------------------------

%% A timeout ends the guest's call, not only the wait for it: the next call runs at once. It covers
%% the wait for other calls; and a server may have one for all calls.
t_timeout(_) ->
    Server = start(#{timeout => 50}),
    Spin = fun(Opts) -> wasmtime_server:call(Server, "spin", [], Opts) end,
    ?assertMatch(?WASMTIME_TRAP(timeout), Spin(#{timeout => 20})),
    ?assertMatch(?WASMTIME_TRAP(timeout), Spin(#{})),
    ?assertEqual({ok, [1]}, wasmtime_server:call(Server, "count", [], #{timeout => 5000})),
    {Pid, _} = caller(fun() -> Spin(#{timeout => infinity}) end),
    calling(Pid),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime_server:call(Server, "count", [], #{timeout => 20})),
    ?assertEqual(ok, wasmtime_server:interrupt(Server)),
    receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end,
    %% The call that timed out while it waited never ran.
    ?assertEqual({ok, [2]}, wasmtime_server:call(Server, "count", [], #{timeout => 5000})),
    ?assertEqual(not_running, wasmtime_server:interrupt(Server)),
    ok = wasmtime_server:stop(Server).

%% A timeout holds while the server is busy with a fresh instance, and leaves nothing behind.
t_timeout_of_a_busy_server(_) ->
    Server = start(#{}),
    ok = sys:suspend(Server),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime_server:call(Server, "count", [], #{timeout => 20})),
    ok = sys:resume(Server),
    ?assertMatch({ok, #{in_flight := 0, calls := 1}}, info(Server)),
    ?assertEqual({ok, [1]}, count(Server)),
    ok = wasmtime_server:stop(Server).

%% A caller that dies ends its own call, running or waiting; the others are served.
t_callers_die(_) ->
    Server = start(#{}),
    [begin
         {Running, _} = caller(fun() -> wasmtime_server:call(Server, "spin", []) end),
         calling(Running),
         {Waiting, _} = caller(fun() -> count(Server) end),
         calling(Waiting),
         {Last, _} = caller(fun() -> count(Server) end),
         calling(Last),
         exit(Waiting, kill),
         exit(Running, kill),
         receive {Last, Result} -> ?assertEqual({ok, [N]}, Result) end
     end || N <- lists:seq(1, 5)],
    ?assertMatch({ok, #{in_flight := 0, failed := 10, calls := 15}}, info(Server)),
    ok = wasmtime_server:stop(Server).

%% A trap leaves the instance usable and its state as it was; `on_trap => stop' stops the server.
t_traps(_) ->
    Kept = start(#{}),
    {ok, [1]} = count(Kept),
    ?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime_server:call(Kept, "trap", [])),
    ?assertEqual({ok, [2]}, count(Kept)),
    ok = wasmtime_server:stop(Kept),
    Stops = start(#{on_trap => stop}),
    %% An error that is no trap is none.
    ?assertMatch(?WASMTIME_ERROR(call, badarity), wasmtime_server:call(Stops, "count", [1])),
    ?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime_server:call(Stops, "trap", [])),
    receive {'EXIT', Stops, Reason} -> ?assertMatch({wasmtime_trap, #{kind := unreachable}}, Reason) end,
    Mourns = start(#{on_trap => stop}),
    {Pid, _} = caller(fun() -> wasmtime_server:call(Mourns, "spin", []) end),
    calling(Pid),
    exit(Pid, kill),
    receive {'EXIT', Mourns, Died} -> ?assertMatch({wasmtime_trap, {caller_died, killed}}, Died) end.

%% ---- life -----------------------------------------------------------------------------------

%% A supervisor starts a server that ended again, with a fresh instance. Its specification is a map that
%% also takes a list of options.
t_supervised(_) ->
    Opts = opts(fun(X) -> X end, #{name => supervised, on_trap => stop}),
    #{id := supervised} = Spec = wasmtime_server:child_spec(maps:to_list(Opts)),
    ?assertEqual(ok, supervisor:check_childspecs([Spec])),
    ?assertMatch(#{id := wasmtime_server}, wasmtime_server:child_spec(maps:remove(name, Opts))),
    {ok, Sup} = supervisor_of([Spec]),
    {ok, [1]} = count(supervised),
    [begin
         Old = whereis(supervised),
         End(Old),
         wait_until(fun() -> is_pid(whereis(supervised)) andalso whereis(supervised) =/= Old end),
         ?assertEqual({ok, [1]}, count(supervised))
     end || End <- [fun(Pid) -> exit(Pid, kill) end,
                    fun(_) -> {error, _} = wasmtime_server:call(supervised, "trap", []) end]],
    stop(Sup).

supervisor_of(Specs) ->
    supervisor:start_link(wasmtime_test_sup, {#{intensity => 1000, period => 1}, Specs}).

stop(Sup) -> gen_server:stop(Sup, shutdown, infinity).

%% Whether it is stopped or killed: calls that run and wait end with `destroyed', and no native object
%% is left, even if others keep the instance's handle.
t_end(_) ->
    Mod = mod(service),
    settled_after(fun() ->
        [begin
             {ok, Server} = wasmtime_server:start_link((opts(fun(X) -> X end))#{module => Mod}),
             {ok, Inst} = wasmtime_server:instance(Server),
             Calls = [caller(fun() -> wasmtime_server:call(Server, "spin", []) end) || _ <- [1, 2, 3]],
             [calling(Pid) || {Pid, _} <- Calls],
             wait_until(fun() -> {ok, I} = wasmtime_server:info(Server), map_get(in_flight, I) =:= 3 end),
             End(Server),
             [receive {Pid, Result} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Result) end
              || {Pid, _} <- Calls],
             ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call(Inst, "count", []))
         end || End <- [fun wasmtime_server:stop/1, fun(Pid) -> exit(Pid, kill) end]]
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% The keeper of the instance and the server end together.
t_keeper(_) ->
    Server = start(#{}),
    {links, Links} = process_info(Server, links),
    [Keeper] = Links -- [self()],
    exit(Keeper, kill),
    receive {'EXIT', Server, killed} -> ok end.

%% A fresh instance begins with the init calls; when they fail there is no server, and no instance.
t_init(_) ->
    Good = [["count", {"count", []}],
            fun(Inst) -> {ok, [1]} = wasmtime:call(Inst, "count", []),
                         {ok, [2]} = wasmtime:call(Inst, "count", []), ok end],
    [begin
         Server = start(#{init => Init}),
         ?assertEqual({ok, [3]}, count(Server)),
         ?assertEqual(ok, wasmtime_server:reset(Server)),
         ?assertEqual({ok, [3]}, count(Server)),
         ok = wasmtime_server:stop(Server)
     end || Init <- Good],
    Before = maps:remove(threads_parked, settled()),
    [?assertMatch({error, #{class := Class, kind := Kind}},
                  wasmtime_server:start_link(opts(fun(X) -> X end, #{init => Init})))
     || {Class, Kind, Init} <- [{trap, unreachable, ["count", "trap"]},
                                {call, unknown_export, ["nothing"]},
                                {instantiate, init, fun(_) -> no end},
                                {instantiate, init, fun(_) -> error(oops) end}]],
    [receive {'EXIT', _, #{class := _}} -> ok end || _ <- lists:seq(1, 4)],
    ?assertEqual(Before, maps:remove(threads_parked, settled())).

%% After a reset, calls that run and wait finish on the old instance, which then is gone; later ones get
%% the fresh one at once.
t_reset(_) ->
    {ok, Server} = wasmtime_server:start_link(opts(fun(X) -> receive go -> X end end)),
    {ok, [1]} = count(Server),
    {ok, Old} = wasmtime_server:instance(Server),
    {Running, _} = caller(fun() -> wasmtime_server:call(Server, "ask", [7]) end),
    calling(Running),
    {Waiting, _} = caller(fun() -> count(Server) end),
    calling(Waiting),
    ?assertEqual(ok, wasmtime_server:reset(Server)),
    ?assertEqual({ok, [1]}, count(Server)),
    ?assertMatch({ok, #{fresh := 2, in_flight := 2}}, wasmtime_server:info(Server)),
    Running ! go,
    receive {Running, Answer} -> ?assertEqual({ok, [7]}, Answer) end,
    receive {Waiting, Count} -> ?assertEqual({ok, [2]}, Count) end,
    wait_until(fun() -> element(1, wasmtime:call(Old, "count", [])) =:= error end),
    ?assertEqual({ok, [2]}, count(Server)),
    ok = wasmtime_server:stop(Server).

%% A swap puts another module in; one that cannot be leaves everything as it is.
t_swap(_) ->
    Server = start(#{}),
    Version = fun() -> wasmtime_server:call(Server, "version", []) end,
    ?assertEqual({ok, [1001]}, Version()),
    ?assertEqual(ok, wasmtime_server:swap(Server, mod(wasmtime_pool_test:version(1002)))),
    ?assertEqual({ok, [1002]}, Version()),
    [?assertMatch({error, #{class := Class, kind := Kind}}, wasmtime_server:swap(Server, Source))
     || {Class, Kind, Source} <- [{instantiate, badarg, nonsense}, {instantiate, badarg, make_ref()},
                                  {compile, file, {file, "/nonexistent"}},
                                  {link, unknown_import, mod(host)}]],
    ?assertEqual({ok, [1002]}, Version()),
    ok = wasmtime_server:stop(Server).

%% Every wrong option is named.
t_options(_) ->
    Good = opts(fun(X) -> X end),
    [?assertMatch({error, #{class := instantiate, kind := badarg, key := Key, message := <<_, _/binary>>}},
                  wasmtime_server:start_link(Good#{Key => Value}))
     || {Key, Value} <- [{name, "text"}, {name, undefined}, {name, {via, "m", x}},
                         {name, {via, no_such_module, x}}, {name, {via, lists, x}}, {module, nonsense},
                         {module, make_ref()}, {module, {file, 1}}, {instance, []},
                         {init, x}, {init, [x]}, {init, [{"f", x}]}, {init, fun() -> ok end},
                         {timeout, -1}, {timeout, soon}, {on_trap, restart}, {size, 1}]],
    [?assertMatch({error, #{class := instantiate, key := Key}}, wasmtime_server:start_link(Bad))
     || {Key, Bad} <- [{module, #{}}, {options, nonsense}, {options, [a]}, {options, [{a, b} | c]}]],
    ?assertMatch({error, #{class := instantiate, key := nonsense}},
                 wasmtime_server:start_link(Good#{instance => #{nonsense => 1}})),
    receive {'EXIT', _, #{key := nonsense}} -> ok end.

%% Hundreds of callers and dozens of servers are killed at random moments: the last caller is served,
%% and nothing is left.
t_storm(_) ->
    Mod = mod(service),
    Opts = (opts(fun(X) -> timer:sleep(X), X end))#{module => Mod, name => storm},
    settled_after(fun() ->
        {ok, Sup} = supervisor_of([wasmtime_server:child_spec(Opts)]),
        [storm(N) || N <- lists:seq(1, wasmtime_test:rounds(200, 600, 10_000))],
        exit(whereis(storm), kill),
        wait_until(fun() -> element(1, count(storm)) =:= ok end),
        stop(Sup)
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

storm(N) ->
    Work = element(N rem 4 + 1, {{"count", []}, {"spin", []}, {"ask", [1]}, {"trap", []}}),
    {Name, Args} = Work,
    Pid = spawn(fun() -> wasmtime_server:call(storm, Name, Args, #{timeout => 1 + N rem 7}) end),
    case N rem 5 of
        0 -> timer:sleep(1);
        _ -> erlang:yield()
    end,
    N rem 3 =:= 0 andalso exit(Pid, kill),
    N rem 97 =:= 0 andalso is_pid(whereis(storm)) andalso exit(whereis(storm), kill).
