%% Isolation of requests that follow each other in the same slots: of what a program left in its
%% interpreter, and of the files under two preopens.
-module(bench_isolation).

-export([run/2]).

-define(ROUNDS, 20).
-define(CALLERS, 8).

%% It leaves marks wherever a request can and tells the marks that it found.
-define(MAIN,
        "import builtins, json, sys\n"
        "places = builtins, json, sys, json.JSONEncoder\n"
        "seen = [getattr(place, 'mark', None) for place in places]\n"
        "hoard = bytearray(b'mark' * 100000)\n"
        "def main(context):\n"
        "    for place in places:\n"
        "        place.mark = context['name']\n"
        "    sys.modules['hoard'] = hoard\n"
        "    with open('/data.txt') as file:\n"
        "        return [seen, context['name'], file.read()]\n").

%% @doc Whether both hold, over many requests in turns and at once.
-spec run(thread | scheduler, bench_guest:guest()) -> #{globals | files => boolean()}.
run(Runner, #{module := Mod} = Guest) ->
    Tenants = [tenant(Runner, Guest, Name) || Name <- ["left", "right"]],
    Caller = fun(Go) ->
        _ = Go(),
        [ask(Mod, Tenant) || _ <- lists:seq(1, ?ROUNDS), Tenant <- Tenants]
    end,
    Seen = lists:append([bench_concurrent:together(N, Caller) || N <- [1, ?CALLERS]]),
    {Globals, Files} = lists:unzip(lists:append(Seen)),
    #{globals => lists:all(fun(Ok) -> Ok end, Globals),
      files => lists:all(fun(Ok) -> Ok end, Files)}.

tenant(Runner, Guest, Name) ->
    Root = bench_guest:root(Guest, Name, [{"main.py", ?MAIN},
                                          {"context.json", ["{\"name\":\"", Name, "\"}"]},
                                          {"data.txt", ["data of ", Name]}]),
    {bench_guest:options(Runner, Guest, Root), list_to_binary(Name)}.

ask(Mod, {Options, Name}) ->
    Inst = bench_guest:instantiate(Mod, Options),
    Code = wasmtime:call(Inst, <<"handle">>, []),
    ok = wasmtime:destroy(Inst),
    judge(Code, bench_guest:answer(), Name).

%% No mark of anybody, and the files of its own root.
judge({ok, [0]}, <<"{\"ok\":[", Answer/binary>>, Name) ->
    [Marks, Files] = binary:split(Answer, <<"],">>),
    {Marks =:= <<"[null,null,null,null">>,
     Files =:= <<"\"", Name/binary, "\",\"data of ", Name/binary, "\"]}">>};
judge(Code, Answer, _) ->
    bench_guest:fail("the isolation guest answered ~tp, ~tp", [Code, Answer]).
