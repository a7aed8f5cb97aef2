%% Code is loaded anew, deleted and purged while instances live and calls run. Rule: calls go on, or the
%% reload is refused with its reason; the VM lives. Each case has a VM of its own.
-module(reload_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, caller/1]).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

in_node(Function) -> ?assertEqual(ok, fault_test:start_node({?MODULE, Function, []}, "")).

%% Every module of the API is loaded anew, twice, under calls that run, wait and host functions; a purge
%% that would hurt one of them is refused.
t_modules(_) -> in_node(modules).

modules() ->
    with_calls(fun(_) ->
        Modules = api(),
        [begin
             ?assert(code:soft_purge(Module)),
             ?assertEqual({module, Module}, code:load_file(Module))
         end || Module <- Modules],
        ?assertNot(code:soft_purge(wasmtime_call)),
        ?assertEqual({error, not_purged}, code:load_file(wasmtime_call))
    end),
    %% Nobody is in the old code any more.
    [?assert(code:soft_purge(Module)) || Module <- api()],
    ok.

api() ->
    _ = application:load(wasmtime),
    {ok, Modules} = application:get_key(wasmtime, modules),
    Modules -- [wasmtime_nif].

%% What lives long has no code of its own on the stack: idle pools and servers, and a call that nobody waits
%% for, outlive any number of upgrades with a purge.
t_upgrades(_) -> in_node(upgrades).

upgrades() ->
    Before = live(),
    Insts = instances(),
    Spins = [begin {ok, Spin} = wasmtime:call_async(Inst, "spin", []), Spin end || Inst <- Insts],
    Waits = [begin {ok, Wait} = wasmtime:call_async(Inst, "ok", []), Wait end || Inst <- Insts],
    Owners = owners(),
    [[begin _ = code:purge(Module), ?assertEqual({module, Module}, code:load_file(Module)) end
      || Module <- api()] || _ <- lists:seq(1, 3)],
    [?assertEqual({ok, [2]}, wasmtime_server:call(Server, "count", [])) || {Server, _} <- Owners],
    [?assertEqual({ok, [1]}, wasmtime_pool:request(Pool, "count", [])) || {_, Pool} <- Owners],
    %% Each runs still, and the other waits behind it.
    [?assertEqual(ok, wasmtime:interrupt(Inst)) || Inst <- Insts],
    [?assertMatch(?WASMTIME_TRAP(interrupt), wasmtime:await(Inst, Spin)) || {Inst, Spin} <- lists:zip(Insts, Spins)],
    [?assertEqual({ok, [1]}, wasmtime:await(Inst, Wait)) || {Inst, Wait} <- lists:zip(Insts, Waits)],
    [ok = wasmtime:destroy(Inst) || Inst <- Insts],
    [begin ok = wasmtime_server:stop(Server), ok = wasmtime_pool:stop(Pool) end || {Server, Pool} <- Owners],
    wasmtime_test:wait_until(fun() -> live() =:= Before end),
    ok.

%% A server that was called once and a pool, for each runner.
owners() ->
    Mod = mod(service),
    [begin
         Ask = #{{"env", "ask"} => fun(_, [X]) -> {ok, [X]} end, runner => Runner},
         {ok, Server} = wasmtime_server:start_link(#{module => Mod, instance => Ask}),
         {ok, Pool} = wasmtime_pool:start_link(#{module => Mod, instance => Ask}),
         {ok, [1]} = wasmtime_server:call(Server, "count", []),
         {Server, Pool}
     end || Runner <- [thread, scheduler]].

%% So does a pool that waits for its last request.
t_upgrade_of_a_stopping_pool(_) -> in_node(stopping).

stopping() ->
    {ok, Pool} = wasmtime_pool:start_link(#{module => mod(add), drain_timeout => infinity}),
    {Holder, _} = caller(fun() -> wasmtime_pool:run(Pool, fun(_) -> receive go -> held end end) end),
    wasmtime_pool_test:until(Pool, 1, 0),
    {Stopper, _} = caller(fun() -> wasmtime_pool:stop(Pool) end),
    wasmtime_test:wait_until(fun() -> map_get(state, wasmtime_pool_test:stats(Pool)) =:= closed end),
    [begin _ = code:purge(Module), {module, Module} = code:load_file(Module) end
     || _ <- lists:seq(1, 3), Module <- [wasmtime_pool_server, wasmtime_keeper]],
    ?assert(is_process_alive(Pool)),
    Holder ! go,
    receive {Holder, Result} -> ?assertEqual(held, Result) end,
    receive {Stopper, Stopped} -> ?assertEqual(ok, Stopped) end,
    ok.

%% A purge kills who is in old code, as ever; what they asked of the guests ends with them.
t_purge(_) -> in_node(purge).

purge() ->
    Before = live(),
    Insts = instances(),
    Calls = calls(Insts),
    {module, _} = code:load_file(wasmtime_call),
    ?assert(code:purge(wasmtime_call)),
    %% The one that waits behind another may have its turn before it is killed.
    [receive {'DOWN', M, _, _, Reason} -> ?assert(lists:member(Reason, [killed, {ok, [1]}])) end || {_, M} <- Calls],
    usable(Insts),
    [ok = wasmtime:destroy(Inst) || Inst <- Insts],
    ?assertEqual(Before, live()),
    ok.

%% The library stays: loading its module anew is refused with the reason, and nobody is disturbed, also
%% when the file was replaced by another.
t_library(_) -> in_node(library).

library() ->
    ok = logger:add_handler(reload, ?MODULE, #{config => self()}),
    with_calls(fun(_) ->
        [begin
             ?assertEqual({error, on_load_failure}, code:load_file(wasmtime_nif)),
             receive {logged, Text} ->
                 ?assertMatch({_, _}, binary:match(Text, <<"cannot be replaced while a node runs">>))
             end
         end || _ <- [1, 2, 3]]
    end),
    ok.

%% As a handler of logs: tells the process of the case what was said.
log(#{msg := {report, Report}}, #{config := Pid}) -> Pid ! {logged, text("~tp", [Report])};
log(#{msg := {string, Text}}, #{config := Pid}) -> Pid ! {logged, text("~ts", [Text])};
log(#{msg := {Format, Args}}, #{config := Pid}) -> Pid ! {logged, text(Format, Args)}.

text(Format, Args) -> unicode:characters_to_binary(io_lib:format(Format, Args)).

%% Without its module the library cannot be called: `undef'. Once purged it can be loaded again; what
%% lived before is no instance for it, and is freed with its references.
t_deleted(_) -> in_node(deleted).

deleted() ->
    ok = logger:set_primary_config(level, none),
    Before = live(),
    wasmtime_test:in_process(fun() ->
        Insts = instances(),
        %% Nobody else may need it meanwhile: the code server can leave several who wait for one module
        %% that does not load waiting for ever.
        true = code:delete(wasmtime_nif),
        ?assertError(undef, wasmtime:call(hd(Insts), <<"ok">>, [])),
        _ = code:purge(wasmtime_nif),
        ?assertEqual({module, wasmtime_nif}, code:load_file(wasmtime_nif)),
        [?assertError(badarg, wasmtime:call(Inst, <<"ok">>, [])) || Inst <- Insts],
        New = instances(),
        usable(New),
        [ok = wasmtime:destroy(Inst) || Inst <- New]
    end),
    wasmtime_test:wait_until(fun() -> live() =:= Before end),
    ok.

%% ---- calls under way ------------------------------------------------------------------------

live() -> maps:remove(threads_parked, wasmtime_test:settled()).

instances() ->
    Mod = mod(loop),
    [begin
         {ok, Inst} = wasmtime:instantiate(Mod, #{{"env", "tick"} => fun(_, []) -> timer:sleep(5), {ok, []} end,
                                                  runner => Runner}),
         Inst
     end || Runner <- [thread, scheduler], _ <- [1, 2, 3]].

%% One that computes, one that is in host functions, one that waits for its turn, for each runner.
calls(Insts) ->
    _ = application:load(wasmtime),
    Names = lists:append(lists:duplicate(2, [<<"spin">>, <<"tick">>, <<"tick">>])),
    Calls = [spawn_monitor(fun() -> exit(wasmtime:call(Inst, Name, [])) end)
             || {Inst, Name} <- lists:zip(Insts, Names)],
    Queued = spawn_monitor(fun() -> exit(wasmtime:call(hd(Insts), <<"ok">>, [])) end),
    [wasmtime_test:calling(Pid) || {Pid, _} <- [Queued | Calls]],
    Calls ++ [Queued].

with_calls(Fun) ->
    Insts = instances(),
    Calls = calls(Insts),
    Fun(Insts),
    {Ran, [Queued]} = lists:split(length(Insts), Calls),
    [ok = wasmtime:interrupt(Inst) || Inst <- Insts],
    [?assertMatch(?WASMTIME_TRAP(interrupt), fault_test:ended(Call)) || Call <- Ran],
    ?assertEqual({ok, [1]}, fault_test:ended(Queued)),
    usable(Insts),
    [ok = wasmtime:destroy(Inst) || Inst <- Insts].

usable(Insts) -> [?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])) || Inst <- Insts].
