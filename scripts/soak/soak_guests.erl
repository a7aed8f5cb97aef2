%% Strains of one guest at a time: what it does, what it is asked, how it ends.
%% Rule: as in soak_strains.
-module(soak_guests).

-export([tenants/1, forks/1, states/1, hostile/1, hosts/1, exits/1, files/1, modules/1, objects/1, links/1,
         python/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/2, instantiate/2, source/1]).

-define(PAGE, 65536).

%% ---- memory ---------------------------------------------------------------------------------

%% Tenants of a pool that write anywhere and grow: each finds the image and nothing else.
tenants(#{memory := Mod}) ->
    {ok, Template} = wasmtime_test:prepare(Mod, #{}),
    lists:append([tenant(Template) || _ <- lists:seq(1, 50)]).

tenant(Template) ->
    {ok, Inst} = wasmtime:instantiate(Template),
    ?assertEqual({ok, image()}, wasmtime:read_memory(Inst, 0, 2 * ?PAGE)),
    Grown = wasmtime:call(Inst, <<"grow">>, [rand:uniform(4) - 1]),
    {ok, {_, Bytes}} = wasmtime:memory_size(Inst),
    Stored = [wasmtime:call(Inst, <<"store">>, [rand:uniform(Bytes) - 1, 255])
              || _ <- lists:seq(1, rand:uniform(20))],
    Filled = wasmtime:call(Inst, <<"fill">>, [rand:uniform(Bytes), 7, rand:uniform(2 * ?PAGE)]),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"count">>, [])),
    ok = wasmtime:destroy(Inst),
    [Grown, Filled | Stored].

image() ->
    Middle = 65530 - 21,
    Rest = 2 * ?PAGE - 65530 - 8,
    <<0:16/unit:8, "image", 0:Middle/unit:8, "straddle", 0:Rest/unit:8>>.

%% The node starts a child while a tenant's memory is dirty, which shares all pages with it for a moment.
forks(#{memory := Mod}) ->
    Inst = inst(Mod, #{}),
    {ok, []} = wasmtime:call(Inst, <<"fill">>, [0, 7, ?PAGE]),
    ?assertEqual("ok\n", os:cmd("echo ok")),
    {ok, <<7>>} = wasmtime:read_memory(Inst, 0, 1),
    ok = wasmtime:destroy(Inst),
    tenants(#{memory => Mod}).

%% ---- ends -----------------------------------------------------------------------------------

%% Every state of an instance, ended in every way.
states(Set) ->
    [lifetime_SUITE:round(State, End, Set) || {State, End} <- lifetime_SUITE:ways()].

%% Whatever a guest tries to use up, it gets an answer, and works afterwards or is gone.
hostile(#{hostile := Mod}) ->
    Inst = inst(Mod, #{{"env", "host"} => fun(_, [X]) -> {ok, [X]} end}),
    Calls = [{<<"deep">>, []}, {<<"even">>, [1]}, {<<"loop">>, []}, {<<"loop_memory">>, []},
             {<<"host_loop">>, []}, {<<"grow_memory">>, [16]}, {<<"grow_refused_for_ever">>, []},
             {<<"fill">>, [-1, 1, -1]}, {<<"copy">>, [0, -1, 1]}, {<<"table_fill">>, [0, -1]},
             {<<"load64">>, [-1]}, {<<"descend">>, [1000]}, {<<"host_then_deep">>, []}],
    Results = [wasmtime:call(Inst, Name, Args, #{timeout => 5}) || {Name, Args} <- Calls],
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    ok = wasmtime:destroy(Inst),
    Results.

%% Host functions that do everything but what they should: the call fails, the instance works.
hosts(#{host := Mod}) ->
    Funs = [fun(_, _) -> error(oops) end, fun(_, _) -> throw(oops) end, fun(_, _) -> exit(oops) end,
            fun(_, _) -> {error, why} end, fun(_, _) -> {ok, []} end, fun(_, _) -> {ok, [x]} end,
            fun(_, _) -> {ok, lists:seq(1, 10_000)} end, fun(_, _) -> binary:copy(<<"x">>, 1_000_000) end,
            fun(Inst, _) -> wasmtime:call(Inst, <<"one">>, [1, 2]) end,
            fun(Inst, [N]) -> wasmtime:call(Inst, <<"double">>, [N]) end,
            fun(_, _) -> timer:sleep(50), {ok, [1]} end],
    [hosted(Mod, Fun) || Fun <- Funs].

hosted(Mod, Fun) ->
    Inst = inst(Mod, wasmtime_test:one(Fun)),
    Result = wasmtime:call(Inst, <<"one">>, [21], #{timeout => 20}),
    ?assertEqual({ok, [14]}, wasmtime:call(Inst, <<"double">>, [7])),
    ok = wasmtime:destroy(Inst),
    Result.

%% ---- WASI -----------------------------------------------------------------------------------

%% Sleeps that are cut short, clocks, randomness, output.
exits(#{stdio := Stdio, wasi := Wasi}) ->
    Inst = inst(Stdio, #{wasi => #{stdin => {binary, binary:copy(<<"x">>, 100_000)}, stdout => capture,
                                   output_limit => 1000}}),
    ?assertEqual({ok, [100_000]}, wasmtime:call(Inst, <<"cat">>, [])),
    {ok, {Out, <<>>, {99_000, 0}}} = wasmtime:read_output(Inst),
    ?assertEqual(1000, byte_size(Out)),
    ok = wasmtime:destroy(Inst),
    Sleeper = inst(Wasi, #{wasi => #{}}),
    Slept = timeout_SUITE:sleep(Sleeper, 60_000, #{timeout => rand:uniform(5)}),
    {ok, [0]} = wasmtime:call(Sleeper, <<"random_get">>, [0, ?PAGE]),
    ok = wasmtime:destroy(Sleeper),
    [Slept].

%% Files made, read back, removed, and ways out of the folder.
files(#{dir := Dir}) ->
    Name = integer_to_binary(rand:uniform(1 bsl 40)),
    Path = filename:join([Dir, "files", Name]),
    preview1:with(#{dirs => [{"/", filename:join(Dir, "files"), write}]}, fun(Inst) ->
        {ok, Fd} = preview1:open(Inst, 3, Name, [write], [creat]),
        {ok, 6} = preview1:write(Inst, Fd, <<"soaked">>),
        ?assertEqual({ok, <<"soaked">>}, file:read_file(Path)),
        ?assertEqual(perm, preview1:open(Inst, 3, <<"../", Name/binary>>, [write], [creat])),
        ?assertEqual(ok, preview1:path(Inst, path_unlink_file, 3, {Name, []})),
        ?assertEqual(noent, preview1:open(Inst, 3, Name)),
        [{ok, Fd}]
    end).

%% ---- modules --------------------------------------------------------------------------------

%% Modules are compiled, kept, damaged, sealed, pre-initialized, cached, and dropped.
modules(#{dir := Dir}) ->
    {ok, Mod} = wasmtime:compile(source(cached_setup)),
    {ok, Artifact} = wasmtime:serialize(Mod),
    {ok, _} = wasmtime:deserialize(Artifact),
    Refused = [wasmtime:deserialize(Bytes)
               || Bytes <- [<<Artifact/binary, 0>>, binary:part(Artifact, 0, rand:uniform(byte_size(Artifact)) - 1),
                            flipped(Artifact), rand:bytes(100)]],
    [?assertMatch({error, _}, Result) || Result <- Refused],
    Cache = filename:join(Dir, "cache" ++ integer_to_list(rand:uniform(3))),
    {ok, Cached} = wasmtime:cached(source(cached_setup), Cache,
                                   #{key => <<"soak">>, preinit => {#{}, [<<"set">>]}}),
    Inst = inst(Cached, #{}),
    ?assertEqual({ok, [7]}, wasmtime:call(Inst, <<"get">>, [])),
    ok = wasmtime:destroy(Inst),
    Refused.

flipped(Bytes) ->
    At = rand:uniform(byte_size(Bytes)) - 1,
    <<Before:At/binary, Byte, After/binary>> = Bytes,
    <<Before/binary, (Byte bxor (1 bsl (rand:uniform(8) - 1))), After/binary>>.

%% ---- references and links -------------------------------------------------------------------

%% Terms and objects go in and come out, are kept, forgotten, collected.
objects(#{refs := Mod}) ->
    Inst = inst(Mod, reference_SUITE:imports()),
    [object(Inst, N) || N <- lists:seq(1, 100)],
    {ok, []} = wasmtime:call(Inst, <<"churn">>, [10_000]),
    ok = wasmtime:gc(Inst),
    Thrown = wasmtime:call(Inst, <<"throw">>, []),
    Foreign = inst(Mod, reference_SUITE:imports()),
    {ok, [Point]} = wasmtime:call(Inst, <<"new_point">>, [1, 2.0]),
    Wrong = wasmtime:call(Foreign, <<"point">>, [Point]),
    ok = wasmtime:destroy(Foreign),
    ok = wasmtime:destroy(Inst),
    [Thrown, Wrong, wasmtime:struct_get(Point, 0)].

object(Inst, N) ->
    Term = {N, make_ref(), binary:copy(<<"t">>, rand:uniform(200))},
    {ok, Ref} = wasmtime:externref(Inst, Term),
    {ok, [Back]} = wasmtime:call(Inst, <<"extern">>, [Ref]),
    ?assertEqual({ok, Term}, wasmtime:externref_data(Back)),
    {ok, []} = wasmtime:call(Inst, <<"keep_extern">>, [Back]),
    {ok, [Double]} = wasmtime:call(Inst, <<"get_double">>, []),
    ?assertEqual({ok, [2 * N]}, wasmtime:call_ref(Inst, Double, [N])).

%% Modules that share memory and table in one store.
links(#{links := {Main, Opts}}) ->
    Inst = inst(Main, Opts),
    ?assertEqual({ok, [20]}, wasmtime:call(Inst, <<"quad">>, [5])),
    {ok, []} = wasmtime:call(Inst, <<"store">>, [0, 9]),
    {ok, <<9, "ase">>} = wasmtime:read_memory(Inst, 0, 4),
    Results = [wasmtime:call(Inst, <<"fail">>, []), wasmtime:call(Inst, <<"spin">>, [], #{timeout => 3}),
               instantiate(Main, #{links => []})],
    ok = wasmtime:destroy(Inst),
    Results.

%% ---- CPython --------------------------------------------------------------------------------

%% A fresh interpreter for each request, and no trace of the one before.
python(#{python := Mod, config := Config}) ->
    Program = "import sys\n"
              "def main(context):\n"
              "    before = getattr(sys, 'soaked', None)\n"
              "    sys.soaked = [bytes(1000) for _ in range(context.get('n', 300))]\n"
              "    return before\n",
    [begin
         Answer = isolation_SUITE:tenant(Config, Mod, Program),
         ?assertEqual(<<"{\"ok\":null}">>, Answer),
         {ok, Answer}
     end || _ <- lists:seq(1, 5)].
