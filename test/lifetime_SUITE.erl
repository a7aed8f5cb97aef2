%% Lifetimes: however an instance ends, no native object, thread or open file is left.
-module(lifetime_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(wasmtime_test, [mod/2, inst/2, in_process/1, settled/0, counted/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(ENDS, [destroy, destroy_twice, drop, kill, exit]).
-define(STATES, [fresh, called, trapped, timed_out, host_error, host_call, spinning, sleeping,
                 queued, start_trap, start_host_error]).

%% Every state, ended in every way, many times over.
t_every_state_and_end(_) ->
    Rounds = wasmtime_test:rounds(4, 20, 10_000 div length(ways()) + 1),
    counted(fun() ->
        Mods = modules(#{}),
        [round(State, End, Mods) || {State, End} <- ways(), _ <- lists:seq(1, Rounds)]
    end).

%% The same in a pool, whose slots come back clean.
t_pooled(_) ->
    Rounds = wasmtime_test:rounds(2, 10, 100),
    Pool = wasmtime_test:pool(#{instances => 1}),
    counted(fun() ->
        #{loop := Mod} = Mods = modules(Pool),
        [begin
             round(State, End, Mods),
             wasmtime_test:wait_until(fun() -> maps:get(used, wasmtime:pool_info(Mod)) =:= 0 end)
         end || {State, End} <- ways(), _ <- lists:seq(1, Rounds)],
        ?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(Mod))
    end).

%% Modules come and go, compiled, loaded, and refused.
t_modules(Config) ->
    Dir = wasmtime_test:temp(Config, "m"),
    counted(fun() ->
        [begin
             Mod = mod(memory, #{fuel => I rem 2 =:= 0}),
             {ok, Bin} = wasmtime:serialize(Mod),
             {ok, _} = wasmtime:deserialize(Bin),
             {ok, _} = wasmtime:deserialize_file(wasmtime_test:write(Dir, "m.cwasm", Bin)),
             {error, _} = wasmtime:deserialize(<<Bin/binary, 0>>),
             {error, _} = wasmtime:compile(<<"x">>)
         end || I <- lists:seq(1, wasmtime_test:rounds(10, 50, 500))]
    end).

%% Pools come and go with their reservations.
t_pools(_) ->
    counted(fun() ->
        [in_process(fun() ->
             Mod = mod(memory, wasmtime_test:pool(#{instances => I})),
             wasmtime:destroy(inst(Mod, #{}))
         end) || I <- lists:seq(1, wasmtime_test:rounds(8, 30, 100))]
    end).

t_preinit(_) ->
    counted(fun() ->
        [wasmtime_test:preinit(wasmtime_test:source(preinit), #{}, Init)
         || _ <- lists:seq(1, wasmtime_test:rounds(5, 20, 200)),
            Init <- [[], ["trap"], ["_initialize"], fun(_) -> error(x) end]]
    end).

%% A module that is dropped while its instance runs lives as long as that.
t_module_outlived(_) ->
    Inst = in_process(fun() -> inst(mod(memory, #{}), #{}) end),
    settled(),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"count">>, [])),
    ok = wasmtime:destroy(Inst).

%% A module keeps nothing of what its instances were given: no input, no argument, no folder.
t_options(Config) ->
    Dir = wasmtime_test:temp(Config, "tenants"),
    Mod = mod(wasi, #{}),
    Size = 20 * 1024 * 1024,
    Before = resident(),
    in_process(fun() -> [tenant(Mod, Dir, integer_to_list(N), Size) || N <- lists:seq(1, 12)] end),
    ?assert(lists:member(open_below(Dir), [[], unknown])),
    settled(),
    wasmtime_test:wait_until(fun() -> resident() < Before + 6 * Size end).

tenant(Mod, Dir, Name, Size) ->
    Folder = filename:join(Dir, Name),
    ok = file:make_dir(Folder),
    Inst = inst(Mod, #{wasi => #{stdin => {binary, binary:copy(<<"x">>, Size)}, dirs => [{"/", Folder, read}],
                                 args => [Name], env => [{"NAME", Name}]}}),
    ?assert(lists:member(open_below(Dir), [[Folder], unknown])),
    ok = wasmtime:destroy(Inst),
    erlang:garbage_collect().

open_below(Dir) ->
    case file:list_dir("/proc/self/fd") of
        {ok, Names} ->
            Links = [file:read_link(filename:join("/proc/self/fd", Name)) || Name <- Names],
            lists:usort([Path || {ok, Path} <- Links, lists:prefix(Dir, Path)]);
        {error, enoent} ->
            unknown
    end.

%% Bytes of memory that the VM has, as the system counts them; 0 where it does not tell.
resident() ->
    case file:read_file("/proc/self/statm") of
        {ok, Numbers} ->
            [_, Pages | _] = binary:split(Numbers, <<" ">>, [global]),
            4096 * binary_to_integer(Pages);
        {error, enoent} ->
            0
    end.

%% Purging and reloading the API's modules leaves instances as they are.
t_reload(_) ->
    Inst = inst(mod(memory, #{}), #{}),
    {ok, [1]} = wasmtime:call(Inst, <<"count">>, []),
    [begin code:purge(M), {module, M} = code:load_file(M) end
     || M <- [wasmtime, wasmtime_call, wasmtime_options]],
    ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"count">>, [])),
    ok = wasmtime:destroy(Inst).

%% ---- rounds ---------------------------------------------------------------------------------

modules(Opts) ->
    maps:from_list([{Name, mod(Name, Opts)} || Name <- [loop, wasi, start_trap, start_host]]).

ways() -> [{State, End} || State <- ?STATES, End <- ?ENDS].

%% One instance: a process brings it into a state, and it ends.
round(State, End, Mods) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        Inst = state(State, Mods),
        Self ! {self(), ready},
        ended(End, Inst),
        %% Takes the callers along, which are linked.
        exit(bye)
    end),
    receive
        {Pid, ready} when End =:= kill -> exit(Pid, kill);
        {Pid, ready} -> ok;
        {'DOWN', Monitor, _, _, Failed} -> error({State, End, Failed})
    end,
    receive {'DOWN', Monitor, _, _, Reason} -> ?assert(lists:member(Reason, [killed, bye]), Reason) end.

ended(_, none) -> ok;
ended(destroy, Inst) -> ok = wasmtime:destroy(Inst);
ended(destroy_twice, Inst) -> ok = wasmtime:destroy(Inst), ok = wasmtime:destroy(Inst);
ended(drop, _) -> garbage_collect();
ended(kill, Inst) -> receive never -> Inst end;
ended(exit, Inst) -> put(kept, Inst).

state(start_trap, #{start_trap := Mod}) ->
    {error, _} = wasmtime_test:instantiate(Mod),
    none;
state(start_host_error, #{start_host := Mod}) ->
    {error, _} = wasmtime_test:instantiate(Mod, #{{"env", "one"} => fun(_, _) -> error(x) end}),
    none;
state(sleeping, #{wasi := Mod}) ->
    Inst = inst(Mod, #{wasi => #{}}),
    running(fun() -> timeout_SUITE:sleep(Inst, 60_000, #{}) end),
    Inst;
state(State, #{loop := Mod}) ->
    Tick = fun(_, []) -> case State of host_error -> error(x); _ -> timer:sleep(infinity) end end,
    Inst = inst(Mod, #{{"env", "tick"} => Tick}),
    state(State, Inst, fun(Name, Opts) -> wasmtime:call(Inst, Name, [], Opts) end),
    Inst.

state(fresh, _, _) -> ok;
state(called, _, Call) -> {ok, [1]} = Call(<<"ok">>, #{});
state(trapped, _, Call) -> {error, _} = Call(<<"nothing">>, #{});
state(timed_out, _, Call) -> {error, _} = Call(<<"spin">>, #{timeout => 1});
state(host_error, _, Call) -> {error, _} = Call(<<"tick_once">>, #{});
state(host_call, _, Call) -> running(fun() -> Call(<<"tick_once">>, #{}) end);
state(spinning, _, Call) -> running(fun() -> Call(<<"spin">>, #{}) end);
state(queued, _, Call) -> [running(fun() -> Call(<<"spin">>, #{}) end) || _ <- [1, 2, 3]].

%% A linked caller dies with the process that made the instance; it holds the instance until then.
running(Call) ->
    Pid = spawn_link(Call),
    wasmtime_test:calling(Pid).
